// SPDX-License-Identifier: MIT

package kubernetes

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	decode(t, text, func(kind string) any {
		object := objects[kind]
		delete(objects, kind) // so that there is one of each
		return object
	})
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
	checkSelectors(t, pod.Labels, map[string]*meta.LabelSelector{
		"Deployment": m.deployment.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector, "NetworkPolicy": &m.network.Spec.PodSelector,
		"topology": pod.Spec.TopologySpreadConstraints[0].LabelSelector, "Service": {MatchLabels: m.service.Spec.Selector},
	})
	c := pod.Spec.Containers[0]
	used := probes(&c)
	used["Service"], used["requests"], used["admin"] = m.service.Spec.Ports[0].TargetPort, *m.network.Spec.Ingress[0].Ports[0].Port, *m.network.Spec.Ingress[1].Ports[0].Port
	checkPorts(t, &c, used)
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
	checkPod(t, &load(t).deployment.Spec.Template.Spec)
}

// diana accepts the configuration and knows each flag.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	m := load(t)
	if len(m.limits.Data) != 1 {
		t.Fatalf("the ConfigMap has %v", slices.Collect(maps.Keys(m.limits.Data)))
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(m.limits.Data["limits.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	diana(t, "check", file)
	checkFlags(t, m.deployment.Spec.Template.Spec.Containers[0].Args)
}
