// SPDX-License-Identifier: MIT

// Package monitoring tests the alerts and the dashboard in the folder monitoring.
package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Every metric and label that a rule, the dashboard or the document names is exposed by a running gateway.
func TestGatewayExposes(t *testing.T) {
	t.Parallel()
	m := &metrics{scrape(t), map[string]names{}}
	for _, r := range rules(t) {
		found := m.check(t, r.Record+r.Alert, r.Expr)
		if r.Record != "" {
			m.recorded[r.Record] = found
		}
	}
	checkDashboard(t, m)
	checkDocument(t, m)
}

// checkDocument checks the alert that docs/watching.md shows. Its rule has a name that no gateway has.
func checkDocument(t *testing.T, m *metrics) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "watching.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, block := range regexp.MustCompile("(?ms)^```yml\n(- alert: .*?)^```$").FindAllSubmatch(text, -1) {
		var alerts []rule
		if err := yaml.Unmarshal(block[1], &alerts); err != nil {
			t.Error(err)
		}
		for _, r := range alerts {
			checked++
			m.check(t, r.Alert, strings.ReplaceAll(r.Expr, "NAME|OTHER NAME", ".*"))
		}
	}
	if checked == 0 {
		t.Error("docs/watching.md shows no alert")
	}
}
