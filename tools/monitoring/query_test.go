// SPDX-License-Identifier: MIT

package monitoring

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// names is a set of labels.
type names map[string]bool

func (n names) add(more names) { maps.Copy(n, more) }

// metrics is what queries can name: the series of a gateway, and the labels of recorded series.
type metrics struct {
	exposed  exposed
	recorded map[string]names
}

// check parses a query, and returns the labels of its result. It fails the test if the query selects no series
// of the gateway, or has a label that none of the series has.
func (m *metrics) check(t *testing.T, where, query string) names {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return nil
	}
	found, problems := m.labels(expr)
	for _, p := range problems {
		t.Errorf("%s: %s in %s", where, p, query)
	}
	return found
}

// labels returns the labels that the result of an expression can have, and what is wrong with it.
func (m *metrics) labels(node parser.Node) (names, []string) {
	found, problems := names{}, []string(nil)
	if s, ok := node.(*parser.VectorSelector); ok {
		return m.selected(s)
	}
	for child := range parser.ChildrenIter(node) {
		more, wrong := m.labels(child)
		found.add(more)
		problems = append(problems, wrong...)
	}
	switch e := node.(type) {
	case *parser.AggregateExpr:
		problems = append(problems, missing(e.Grouping, found)...)
		if !e.Without {
			maps.DeleteFunc(found, func(label string, _ bool) bool { return !slices.Contains(e.Grouping, label) })
		}
	case *parser.BinaryExpr:
		if e.VectorMatching == nil {
			break
		}
		for _, side := range []parser.Expr{e.LHS, e.RHS} {
			has, _ := m.labels(side)
			problems = append(problems, missing(e.VectorMatching.MatchingLabels, has)...)
		}
	}
	return found, problems
}

// selected returns the labels of the series that a selector selects. Prometheus adds job and instance.
func (m *metrics) selected(s *parser.VectorSelector) (names, []string) {
	found := names{"job": true, "instance": true}
	if recorded, ok := m.recorded[s.Name]; ok {
		found.add(recorded)
		return found, nil
	}
	if len(m.exposed[s.Name]) == 0 {
		return found, []string{fmt.Sprintf("the gateway exposes no metric %q", s.Name)}
	}
	for _, series := range m.exposed[s.Name] {
		series.Range(func(l labels.Label) { found[l.Name] = true })
	}
	var problems []string
	for _, matcher := range s.LabelMatchers {
		problems = append(problems, missing([]string{matcher.Name}, found)...)
	}
	if !slices.ContainsFunc(m.exposed[s.Name], func(series labels.Labels) bool { return matches(s.LabelMatchers, series) }) {
		problems = append(problems, fmt.Sprintf("the gateway exposes no series %s", s))
	}
	return found, problems
}

func matches(matchers []*labels.Matcher, series labels.Labels) bool {
	for _, m := range matchers {
		if m.Name != "job" && m.Name != "instance" && !m.Matches(series.Get(m.Name)) {
			return false
		}
	}
	return true
}

func missing(wanted []string, found names) []string {
	var problems []string
	for _, label := range wanted {
		if !found[label] {
			problems = append(problems, fmt.Sprintf("no series has the label %q", label))
		}
	}
	return problems
}

// The check finds each kind of mistake. Without this, it could accept everything.
func TestCheck(t *testing.T) {
	t.Parallel()
	m := metrics{
		exposed:  exposed{"up": {labels.FromStrings("__name__", "up", "kind", "a")}},
		recorded: map[string]names{"up:ratio": {"job": true}},
	}
	for query, want := range map[string]string{
		`sum by (job, kind) (rate(up{kind=~"a|b"}[5m])) > 2 * up:ratio`: "",
		`down`:                              `the gateway exposes no metric "down"`,
		`rate(down[5m])`:                    `the gateway exposes no metric "down"`,
		`up{sort="a"}`:                      `no series has the label "sort"`,
		`up{kind="b"}`:                      `the gateway exposes no series up{kind="b"}`,
		`sum by (sort) (up)`:                `no series has the label "sort"`,
		`sum without (sort) (up)`:           `no series has the label "sort"`,
		`sum by (kind) (sum by (job) (up))`: `no series has the label "kind"`,
		`up unless on (kind) sum(up)`:       `no series has the label "kind"`,
		`up > on (job) up and down == 1`:    `the gateway exposes no metric "down"`,
	} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		_, problems := m.labels(expr)
		if got := strings.Join(problems, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, expected %q", query, got, want)
		}
	}
}
