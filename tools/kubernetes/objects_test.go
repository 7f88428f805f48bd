// SPDX-License-Identifier: MIT

// Package kubernetes tests the manifests in packaging/kubernetes, and the chart in packaging/helm/diana, which Helm
// renders. Their objects decode into the types of Kubernetes.
package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// programs are those of Helm and of Diana.
var programs struct{ helm, diana string }

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	path, err := exec.Command("go", "tool", "-n", "helm").Output() // builds it once
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programs.helm, programs.diana = strings.TrimSpace(string(path)), filepath.Join(dir, "diana")
	build := exec.Command("go", "build", "-o", programs.diana, "./cmd/diana")
	build.Dir, build.Env = "../..", append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// diana runs a command that shall succeed, and returns what it prints.
func diana(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(programs.diana, args...)
	cmd.Env = append(os.Environ(), "DIANA_REDIS_PASSWORD=x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// decode decodes each object of a text into what object returns for its version and kind. An unknown object, and an
// unknown or repeated field, are errors.
func decode(t *testing.T, text []byte, object func(kind string) any) {
	t.Helper()
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		name := kind.APIVersion + " " + kind.Kind
		into := object(name)
		if into == nil {
			t.Fatalf("%s is unknown, or there twice:\n%s", name, document)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%s: %v\n%s", name, err, document)
		}
	}
}

// checkSelectors reports selectors that do not select the pods.
func checkSelectors(t *testing.T, pods labels.Set, selectors map[string]*meta.LabelSelector) {
	t.Helper()
	for name, s := range selectors {
		selector, err := meta.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(pods) {
			t.Errorf("the selector of %s does not match the pods: %v", name, err)
		}
	}
}

// probes returns the ports that the probes of a container use.
func probes(c *core.Container) map[string]intstr.IntOrString {
	return map[string]intstr.IntOrString{
		"liveness": c.LivenessProbe.HTTPGet.Port, "readiness": c.ReadinessProbe.HTTPGet.Port, "startup": c.StartupProbe.HTTPGet.Port,
	}
}

// checkPorts reports ports that a container does not have. used are ports, by what uses them.
func checkPorts(t *testing.T, c *core.Container, used map[string]intstr.IntOrString) {
	t.Helper()
	known := map[intstr.IntOrString]bool{}
	for _, p := range c.Ports {
		known[intstr.FromString(p.Name)] = true
	}
	for name, port := range used {
		if !known[port] {
			t.Errorf("%s: the container has no port %s", name, port.String())
		}
	}
}

// checkPod reports a pod that does not meet the level "restricted" of Kubernetes' pod security standards, that can write
// to its files, or that gets a token of the API.
func checkPod(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Errorf("pod: %v", s)
	}
	s := pod.Containers[0].SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("container: %v", s)
	}
}

// checkFlags reports flags that diana does not know.
func checkFlags(t *testing.T, args []string) {
	t.Helper()
	known := strings.Fields(diana(t, "complete", "--", args[0], "--"))
	for _, arg := range args[1:] {
		if flag, _, _ := strings.Cut(arg, "="); !slices.Contains(known, flag) {
			t.Errorf("diana %s has no flag %s", args[0], flag)
		}
	}
}
