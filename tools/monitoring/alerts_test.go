// SPDX-License-Identifier: MIT

package monitoring

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// root is the folder of the repository.
var root = filepath.Join("..", "..")

// folder has the alerts and the dashboard.
var folder = filepath.Join(root, "monitoring")

// rule is an alert, or a recorded series.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules returns the rules of alerts.yml.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	text, err := os.ReadFile(filepath.Join(folder, "alerts.yml"))
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// section returns the heading of a document that a URL leads to, or "".
func section(t *testing.T, link string) string {
	t.Helper()
	file, ok := strings.CutPrefix(link, "https://github.com/diana-limiter/diana/blob/main/")
	u, err := url.Parse(file)
	if err != nil || !ok {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, u.Path))
	if err != nil {
		t.Error(err)
		return ""
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-") == u.Fragment {
			return heading[1]
		}
	}
	return ""
}

// Each alert says how urgent it is and what to do, and leads to a section of the documents.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if r.For == "" {
			t.Errorf("%s: there is no for", r.Alert)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity is %q, expected critical or warning", r.Alert, s)
		}
		for _, part := range []string{"summary", "description"} {
			if r.Annotations[part] == "" {
				t.Errorf("%s: there is no %s", r.Alert, part)
			}
		}
		if link := r.Annotations["runbook_url"]; section(t, link) == "" {
			t.Errorf("%s: runbook_url is %q, expected a section of a document", r.Alert, link)
		}
	}
}

// Each alert has a test in which it fires, and one in which it does not. Prometheus runs them.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		var cases struct {
			Tests []struct {
				Rules []struct {
					Alert    string           `yaml:"alertname"`
					Expected []map[string]any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &cases)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range cases.Tests {
			for _, r := range test.Rules {
				fires[r.Alert] = fires[r.Alert] || len(r.Expected) > 0
				quiet[r.Alert] = quiet[r.Alert] || len(r.Expected) == 0
			}
		}
	}
	for _, r := range rules(t) {
		if r.Alert != "" && (!fires[r.Alert] || !quiet[r.Alert]) {
			t.Errorf("%s: a test fires: %v, a test stays quiet: %v; expected both", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
	promtool(t, "check", "rules", filepath.Join(folder, "alerts.yml"))
	promtool(t, append([]string{"test", "rules"}, files...)...)
}

// promtool runs a command of Prometheus. Without promtool the test is skipped, or fails if the environment has CI.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
