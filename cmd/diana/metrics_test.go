// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/reference/metrics.md lists the metrics of /metrics, with the same labels.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{} // labels by name
	for _, m := range regexp.MustCompile("(?m)^\\| `(diana_\\w+)(?:\\{([a-z,]+)\\})?` \\|").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	files := writePair(t, t.TempDir(), "first", inAnHour())
	descriptors := filepath.Join(t.TempDir(), "descriptors.yaml")
	write(t, descriptors, []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]"))
	g := launch(t, "url: /\nrules: [{rpu: 5, cost: {answer: openai}}]", "http://127.0.0.1:1", "--upstream", "http://127.0.0.1:2",
		"--tls-cert", files.cert, "--tls-key", files.key, "--check", "127.0.0.1:0", "--descriptors", descriptors)
	_, g.admin, _ = strings.Cut(g.lines(t, 3)[1], "diana: admin on ")
	there := map[string]bool{
		"diana_config_centre_reached": true, // with a remote configuration
		"diana_shed_total":            true, // with adaptive concurrency, which --check rejects
	}
	page := string(g.tell(t, "/metrics"))
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (diana_\w+) `).FindAllStringSubmatch(page, -1) {
		name := m[1]
		there[name] = true
		labels, ok := documented[name]
		if !ok {
			t.Errorf("docs/reference/metrics.md does not have %s", name)
			continue
		}
		want := strings.Split(labels, ",")
		slices.Sort(want)
		got := labelsOf(page, name)
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s has the labels %v, and docs/reference/metrics.md says %v", name, got, want)
		}
	}
	for name := range documented {
		if !there[name] {
			t.Errorf("/metrics does not have %s", name)
		}
	}
}

// labelsOf returns the labels of a metric in the text of /metrics, but for those of histograms and of the limiter that
// counts descriptors.
func labelsOf(page, name string) (labels []string) {
	sample := regexp.MustCompile(`(?m)^` + name + `(?:_bucket)?(?:\{(.*)\})? `)
	for _, m := range sample.FindAllStringSubmatch(page, -1) {
		labels = nil
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[1], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		if !slices.Contains(labels, "limits") {
			break
		}
	}
	slices.Sort(labels)
	return labels
}
