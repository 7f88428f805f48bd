// SPDX-License-Identifier: MIT

package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const chart = "../../packaging/helm/diana"

// rendered are the objects of a release.
type rendered struct {
	maps       map[string]core.ConfigMap
	deployment apps.Deployment
	service    core.Service
	budget     *policy.PodDisruptionBudget
	monitor    *monitoring.ServiceMonitor
	network    *networking.NetworkPolicy
}

// template renders the chart with values.
func template(t *testing.T, values string) (text []byte, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(programs.helm, "template", "shop", chart, "--namespace", "limits", "--kube-version", "1.34.0", "--values", file)
	cmd.Stderr = &stderr
	if text, err = cmd.Output(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return text, nil
}

// render decodes the objects. An unknown or repeated field is an error.
func render(t *testing.T, values string) *rendered {
	t.Helper()
	text, err := template(t, values)
	if err != nil {
		t.Fatal(err)
	}
	r := &rendered{maps: map[string]core.ConfigMap{}}
	var configs []*core.ConfigMap
	decode(t, text, func(kind string) any {
		switch kind {
		case "v1 ConfigMap":
			configs = append(configs, &core.ConfigMap{})
			return configs[len(configs)-1]
		case "apps/v1 Deployment":
			return &r.deployment
		case "v1 Service":
			return &r.service
		case "policy/v1 PodDisruptionBudget":
			r.budget = &policy.PodDisruptionBudget{}
			return r.budget
		case "monitoring.coreos.com/v1 ServiceMonitor":
			r.monitor = &monitoring.ServiceMonitor{}
			return r.monitor
		case "networking.k8s.io/v1 NetworkPolicy":
			r.network = &networking.NetworkPolicy{}
			return r.network
		}
		return nil
	})
	for _, config := range configs {
		r.maps[config.Name] = *config
	}
	return r
}

// cases are values, by what they are for, and what the release has.
var cases = []struct {
	name, values string
	args         []string // of the container, besides those of every release
	ports        string   // of the Service
	env          string   // names of the variables
	maps         []string
	config       string // a part of the configuration
}{
	{
		name: "the defaults", ports: "http:80->http", maps: []string{"shop-diana"},
		args: []string{"serve", "--config=/etc/diana/diana.yaml", "--admin=:9090", "--listen=:8080", "--upstream=http://upstream:8080"},
	},
	{
		name: "Redis", values: "redis: {url: \"rediss://redis.data:6380/1\", passwordSecret: {name: redis-auth, key: pw}}", ports: "http:80->http", maps: []string{"shop-diana"},
		env: "DIANA_REDIS_PASSWORD", config: "redis:\n  password: env:DIANA_REDIS_PASSWORD\n  url: rediss://redis.data:6380/1",
	},
	{
		name: "a configuration with special characters", ports: "http:80->http", maps: []string{"shop-diana"},
		values: "config: {identity: {account: ['cookie:sid']}, limits: [{url: '/a/*', rules: [{name: '{{ .Values }} ann: \"x\" #y', actor: account, rpu: 1, unit: day}]}]}\nargs: [--log-level=warn, '--log-format=json']",
		args:   []string{"--log-level=warn", "--log-format=json"}, config: "{{ .Values }} ann: \"x\" #y",
	},
	{
		name: "decisions", values: "mode: decisions\nservice: {type: LoadBalancer, annotations: {a/b: 'true'}}\nserviceMonitor: {enabled: true, labels: {release: prometheus}}",
		args: []string{"serve", "--check=:9100", "--grpc=:8081"}, ports: "admin:9090->admin check:9100->check grpc:8081->grpc", maps: []string{"shop-diana"},
	},
	{
		name: "decisions by descriptors", values: "mode: decisions\ndescriptors: {shop.yaml: \"domain: shop\\ndescriptors:\\n- key: user\\n  rate_limit: {unit: minute, requests_per_unit: 5}\\n\"}",
		args: []string{"--descriptors=/etc/diana-descriptors/ratelimit/config"}, ports: "check:9100->check grpc:8081->grpc", maps: []string{"shop-diana", "shop-diana-descriptors"},
	},
	{
		name: "in place of envoyproxy/ratelimit", ports: "admin:9090->admin grpc:8081->grpc http:8080->http", maps: []string{"shop-diana-descriptors"}, args: []string{"ratelimit"},
		values: "mode: ratelimit\nredis: {url: \"redis://redis:6379\", passwordSecret: {name: r}}\nenv: [{name: LOG_LEVEL, value: info}]\nserviceMonitor: {enabled: true}\n" +
			"descriptors: {a.yml: \"domain: shop\\ndescriptors: []\\n\"}",
		env: "REDIS_AUTH REDIS_SOCKET_TYPE REDIS_URL REDIS_TLS RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_IGNOREDOTFILES USE_PROMETHEUS PROMETHEUS_ADDR LOG_LEVEL",
	},
	{
		name: "all else", ports: "http:80->http", maps: []string{"shop-diana"}, env: "X",
		values: "replicas: 5\nimage: {repository: registry.test/diana, tag: v9, pullPolicy: Always}\nimagePullSecrets: [{name: pull}]\nenv: [{name: X, value: '1'}]\n" +
			"podDisruptionBudget: {minAvailable: 50%}\npodAnnotations: {a: b}\npodLabels: {team: x, app.kubernetes.io/name: stolen}\nresources: {limits: {memory: 1Gi}}\n" +
			"nodeSelector: {disk: ssd}\ntolerations: [{key: k, operator: Exists}]\naffinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: z, operator: Exists}]}]}}}",
	},
}

// Every release is complete: selectors select the pods, ports and volumes exist, pods are restricted, and diana accepts the
// configuration and the flags.
func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, row := range cases {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, row.values)
			pod := r.deployment.Spec.Template
			c := pod.Spec.Containers[0]
			for _, arg := range row.args {
				if !slices.Contains(c.Args, arg) {
					t.Errorf("args %q lack %s", c.Args, arg)
				}
			}
			var ports, env []string
			for _, p := range r.service.Spec.Ports {
				ports = append(ports, fmt.Sprintf("%s:%d->%s", p.Name, p.Port, p.TargetPort.String()))
			}
			if got := strings.Join(ports, " "); got != row.ports {
				t.Errorf("ports %s, want %s", got, row.ports)
			}
			for _, e := range c.Env {
				env = append(env, e.Name)
				if s := e.ValueFrom; s != nil && (s.SecretKeyRef.Name == "" || s.SecretKeyRef.Key == "") {
					t.Errorf("%s has no Secret", e.Name)
				}
			}
			if got := strings.Join(env, " "); got != row.env {
				t.Errorf("variables %s, want %s", got, row.env)
			}
			checkReferences(t, r)
			checkPod(t, &pod.Spec)
			if len(r.maps) != len(row.maps) {
				t.Errorf("%d ConfigMaps, want %v", len(r.maps), row.maps)
			}
			for _, name := range row.maps {
				if _, ok := r.maps[name]; !ok {
					t.Errorf("there is no ConfigMap %s", name)
				}
			}
			if text := r.maps["shop-diana"].Data["diana.yaml"]; !strings.Contains(text, row.config) {
				t.Errorf("the configuration lacks %q:\n%s", row.config, text)
			}
			checkAccepted(t, r, c.Args)
		})
	}
}

// checkReferences reports what names something that does not exist.
func checkReferences(t *testing.T, r *rendered) {
	t.Helper()
	pod := r.deployment.Spec.Template
	selectors := map[string]*meta.LabelSelector{
		"Deployment": r.deployment.Spec.Selector, "topology": pod.Spec.TopologySpreadConstraints[0].LabelSelector, "Service": {MatchLabels: r.service.Spec.Selector},
	}
	if r.budget != nil {
		selectors["PodDisruptionBudget"] = r.budget.Spec.Selector
	}
	if r.network != nil {
		selectors["NetworkPolicy"] = &r.network.Spec.PodSelector
	}
	checkSelectors(t, pod.Labels, selectors)
	c := pod.Spec.Containers[0]
	used := probes(&c)
	served := map[string]bool{}
	for _, p := range r.service.Spec.Ports {
		used["Service "+p.Name], served[p.Name] = p.TargetPort, true
	}
	if r.network != nil {
		for i, rule := range r.network.Spec.Ingress {
			for k, p := range rule.Ports {
				used[fmt.Sprintf("ingress %d, port %d", i, k)] = *p.Port
			}
		}
	}
	checkPorts(t, &c, used)
	if m := r.monitor; m != nil {
		s, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil || !s.Matches(labels.Set(r.service.Labels)) || !served[m.Spec.Endpoints[0].Port] {
			t.Errorf("the ServiceMonitor does not find the port of the Service: %v", err)
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if _, ok := r.maps[v.ConfigMap.Name]; !ok {
			t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] || m.SubPath != "" {
			t.Errorf("the container does not get %s as a folder", m.Name)
		}
	}
}

// checkAccepted reports what diana does not accept.
func checkAccepted(t *testing.T, r *rendered, args []string) {
	t.Helper()
	dir := t.TempDir()
	for _, m := range r.maps {
		for name, text := range m.Data {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "diana.yaml" {
				diana(t, "check", file)
			} else {
				diana(t, "check", "--descriptors", file)
			}
		}
	}
	if args[0] != "serve" {
		return
	}
	checkFlags(t, args)
}

// Values of the wrong form are rejected, and the message names them.
func TestRejected(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"mode: proxy":                         "mode",
		"upstream: ''":                        "upstream",
		"upstream: localhost:3000":            "upstream",
		"replicas: two":                       "replicas",
		"replica: 2":                          "replica",
		"redis: {url: 'redis://:secret@h'}":   "url",
		"redis: {url: 'h:6379'}":              "url",
		"config: {redis: {url: 'redis://h'}}": "redis",
		"descriptors: {a.yaml: x}":            "descriptors",
		"mode: ratelimit":                     "url",
		"mode: ratelimit\nredis: {url: 'redis://h:1'}\nargs: [--x]": "args",
		"mode: decisions\ndescriptors: {a.txt: x}":                  "a.txt",
		"args: [log-level=warn]":                                    "args",
		"podDisruptionBudget: {minAvailable: half}":                 "minAvailable",
		"serviceMonitor: {interval: often}":                         "interval",
		"env: [{value: x}]":                                         "name",
	} {
		if _, err := template(t, values); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v, want an error of the schema about %s", values, err, want)
		}
	}
}

// Helm's linter finds nothing, and the chart has the version of the program.
func TestLint(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(programs.helm, "lint", chart, "--strict").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("[WARNING]")) || bytes.Contains(out, []byte("[ERROR]")) {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../packaging/kubernetes/diana.yaml")
	if err != nil {
		t.Fatal(err)
	}
	about, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var versions struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(about, &versions); err != nil || "v"+versions.Version != versions.AppVersion {
		t.Errorf("Chart.yaml has the versions %v, %v", versions, err)
	}
	c := render(t, "").deployment.Spec.Template.Spec.Containers[0]
	if !bytes.Contains(text, []byte("image: "+c.Image+"\n")) {
		t.Errorf("the chart has the image %s, and packaging/kubernetes/diana.yaml another one", c.Image)
	}
}
