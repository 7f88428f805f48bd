// SPDX-License-Identifier: MIT

// Package kubernetes tests the manifests in packaging/kubernetes against the types of Kubernetes' API.
package kubernetes

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of diana.yaml.
type manifests struct {
	limits     core.ConfigMap
	deployment apps.Deployment
	service    core.Service
	budget     policy.PodDisruptionBudget
	network    networking.NetworkPolicy
}

// load decodes the objects. An unknown or repeated field is an error.
func load(t *testing.T) *manifests {
	t.Helper()
	text, err := os.ReadFile("../../packaging/kubernetes/diana.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{}
	objects := map[string]any{
		"v1 ConfigMap": &m.limits, "apps/v1 Deployment": &m.deployment, "v1 Service": &m.service,
		"policy/v1 PodDisruptionBudget": &m.budget, "networking.k8s.io/v1 NetworkPolicy": &m.network,
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		name := kind.APIVersion + " " + kind.Kind
		object, ok := objects[name]
		if !ok {
			t.Fatalf("%s is unknown, or there twice", name)
		}
		delete(objects, name)
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name := range objects {
		t.Errorf("there is no %s", name)
	}
	return m
}

// All selectors select the pods, and all ports that something names are ports of the container.
func TestReferences(t *testing.T) {
	t.Parallel()
	m := load(t)
	pod := m.deployment.Spec.Template
	for name, s := range map[string]*meta.LabelSelector{
		"Deployment": m.deployment.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector, "NetworkPolicy": &m.network.Spec.PodSelector,
		"topology": pod.Spec.TopologySpreadConstraints[0].LabelSelector, "Service": {MatchLabels: m.service.Spec.Selector},
	} {
		selector, err := meta.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the selector of %s does not match the pods: %v", name, err)
		}
	}
	c := pod.Spec.Containers[0]
	ports := map[intstr.IntOrString]bool{}
	for _, p := range c.Ports {
		ports[intstr.FromString(p.Name)] = true
	}
	for name, port := range map[string]intstr.IntOrString{
		"liveness": c.LivenessProbe.HTTPGet.Port, "readiness": c.ReadinessProbe.HTTPGet.Port, "startup": c.StartupProbe.HTTPGet.Port,
		"Service": m.service.Spec.Ports[0].TargetPort, "requests": *m.network.Spec.Ingress[0].Ports[0].Port, "admin": *m.network.Spec.Ingress[1].Ports[0].Port,
	} {
		if !ports[port] {
			t.Errorf("%s: the container has no port %s", name, port.String())
		}
	}
	volume := pod.Spec.Volumes[0]
	if volume.ConfigMap.Name != m.limits.Name || c.VolumeMounts[0].Name != volume.Name || c.VolumeMounts[0].SubPath != "" {
		t.Error("the container does not get the ConfigMap as a folder")
	}
	if b := m.budget.Spec.MinAvailable.IntValue(); b < 1 || b >= int(*m.deployment.Spec.Replicas) {
		t.Errorf("a budget of %d of %d pods allows no drain of a node", b, *m.deployment.Spec.Replicas)
	}
}

// The pods meet the level "restricted" of Kubernetes' pod security standards, and cannot write to their files.
func TestRestricted(t *testing.T) {
	t.Parallel()
	pod := load(t).deployment.Spec.Template.Spec
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %v", s)
	}
	s := pod.Containers[0].SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("container: %v", s)
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("the pods get a token of the API")
	}
}

// diana accepts the configuration and knows each flag.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	m := load(t)
	diana := func(args ...string) string {
		cmd := exec.Command("go", append([]string{"run", "./cmd/diana"}, args...)...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOWORK=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	if len(m.limits.Data) != 1 {
		t.Fatalf("the ConfigMap has %v", slices.Collect(maps.Keys(m.limits.Data)))
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(m.limits.Data["limits.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	diana("check", file)
	args := m.deployment.Spec.Template.Spec.Containers[0].Args
	known := strings.Fields(diana("complete", "--", args[0], "--"))
	for _, arg := range args[1:] {
		if flag, _, _ := strings.Cut(arg, "="); !slices.Contains(known, flag) {
			t.Errorf("diana %s has no flag %s", args[0], flag)
		}
	}
}
