// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// compile makes a Set with one rule for each url, which is named like it.
func compile(t testing.TB, texts ...string) *Set {
	t.Helper()
	var entries []rule.Entry
	for _, text := range texts {
		entries = append(entries, rule.Entry{URL: pattern(t, text), Rules: []rule.Rule{perSecond(text)}})
	}
	s, err := Compile(entries, rule.Identity{}, rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// perSecond returns a rule with that name.
func perSecond(name string) rule.Rule {
	return rule.Rule{Name: name, Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
}

func pattern(t testing.TB, text string) rule.Pattern {
	t.Helper()
	var p rule.Pattern
	if err := p.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// find returns the names of the rules of a request.
func find(s *Set, r *rule.Request) ([]string, *rule.PathError) {
	var m Match
	err := s.Find(&m, r)
	names := make([]string, len(m.Rules))
	for i, r := range m.Rules {
		names[i] = r.Name
	}
	return names, err
}

// urls returns the names of the rules of a request whose path is not refused.
func urls(t testing.TB, s *Set, method, path string) []string {
	t.Helper()
	names, err := find(s, &rule.Request{Method: method, Path: path})
	if err != nil {
		t.Fatalf("%q: %v", path, err)
	}
	return names
}

// explain is Explain of a request whose path is not refused.
func explain(t testing.TB, s *Set, r *rule.Request) []Explanation {
	t.Helper()
	explained, err := s.Explain(r)
	if err != nil {
		t.Fatal(err)
	}
	return explained
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := compile(t, "/sample/deep", "/users/{id}/orders", "POST /sample", "/sample", "GET /sample", "/users/me", "/", "/users/{id}", "/{any}")
	for _, tc := range []struct {
		method, path string
		want         []string
	}{
		{"GET", "/", []string{"/"}},
		{"GET", "/sample", []string{"/", "/sample", "GET /sample", "/{any}"}},
		{"HEAD", "/sample", []string{"/", "/sample", "GET /sample", "/{any}"}},
		{"POST", "/sample/x", []string{"/", "POST /sample", "/sample", "/{any}"}},
		{"PUT", "/sample/deep/er", []string{"/", "/sample", "/{any}", "/sample/deep"}},
		{"GET", "/sampler", []string{"/", "/{any}"}},
		{"GET", "/users/me", []string{"/", "/{any}", "/users/me", "/users/{id}"}},
		{"GET", "/users/7/orders/1", []string{"/", "/{any}", "/users/{id}", "/users/{id}/orders"}},
		{"GET", "/users", []string{"/", "/{any}"}},
	} {
		if got := urls(t, s, tc.method, tc.path); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.path, got, tc.want)
		}
	}
}

// The tree finds what comparing with every entry finds.
func TestFindAgainstSlowModel(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "b", "{x}", "c"}
	for range 200 {
		set := map[string]bool{"/": true}
		for range 20 {
			text := ""
			for range 1 + rnd.IntN(4) {
				text += "/" + words[rnd.IntN(len(words))]
			}
			set[text] = true
		}
		texts := slices.Sorted(maps.Keys(set))
		s := compile(t, texts...)
		for range 50 {
			path := ""
			for range rnd.IntN(6) {
				path += "/" + string("abcd"[rnd.IntN(4)])
			}
			var want []string
			for depth := range 6 {
				for _, text := range texts {
					if covers(text, path) && depth == strings.Count(strings.TrimSuffix(text, "/"), "/") {
						want = append(want, text)
					}
				}
			}
			if got := urls(t, s, "GET", path); !slices.Equal(got, want) {
				t.Fatalf("%q in %q: %q, want %q", path, texts, got, want)
			}
		}
	}
}

func covers(pattern, path string) bool {
	if pattern == "/" {
		return true
	}
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(got) < len(want) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && want[i] != "{x}" {
			return false
		}
	}
	return true
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
	named := r
	named.Name = "x"
	bad := r
	bad.Limit.Unit = 0
	for _, tc := range []struct {
		entries []rule.Entry
		want    string
	}{
		{[]rule.Entry{{URL: pattern(t, "/a/{x}"), Rules: []rule.Rule{r}}, {URL: pattern(t, "/a/{y}"), Rules: []rule.Rule{r}}}, `two entries have the url "/a/{y}"`},
		{[]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{named, named}}}, `two rules have the name "x"`},
		{[]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{bad}}}, "unit is 0s"},
	} {
		if _, err := Compile(tc.entries, rule.Identity{}, rule.Paths{}, actors.Kinds()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
}

func TestNamesAndCounters(t *testing.T) {
	t.Parallel()
	tb := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 10, Unit: time.Second}, Actor: []rule.Actor{{Kind: "device"}}}
	c := rule.Rule{Algorithm: limit.Concurrency(), Limit: limit.Limit{N: 3}}
	s, err := Compile([]rule.Entry{{URL: pattern(t, "POST /a"), Rules: []rule.Rule{tb, tb, c}}}, rule.Identity{}, rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"POST /a device TB 10/second", "POST /a device TB 10/second #2", "POST /a all C 3"} {
		if got := s.Rules[i].Name; got != want {
			t.Errorf("rule %d is named %q, want %q", i, got, want)
		}
	}
	if s.Rules[0].Counters == s.Rules[1].Counters {
		t.Error("two rules share their counters")
	}

	// What gives a count its meaning is in the counters' name, and nothing else.
	counters := func(change func(*rule.Rule)) string {
		r := tb
		change(&r)
		s, err := Compile([]rule.Entry{{URL: pattern(t, "/a"), Rules: []rule.Rule{r}}}, rule.Identity{}, rule.Paths{}, actors.Kinds())
		if err != nil {
			t.Fatal(err)
		}
		return s.Rules[0].Counters
	}
	base := counters(func(*rule.Rule) {})
	for name, change := range map[string]func(*rule.Rule){
		"rpu":   func(r *rule.Rule) { r.Limit.N = 20 },
		"burst": func(r *rule.Rule) { r.Limit.Burst = 5 },
		"mode":  func(r *rule.Rule) { r.Shadow = true },
	} {
		if counters(change) != base {
			t.Errorf("counters change with %s", name)
		}
	}
	for name, change := range map[string]func(*rule.Rule){
		"name":  func(r *rule.Rule) { r.Name = "x" },
		"algo":  func(r *rule.Rule) { r.Algorithm = limit.LeakyBucket() },
		"unit":  func(r *rule.Rule) { r.Limit.Unit = time.Minute },
		"actor": func(r *rule.Rule) { r.Actor = nil },
	} {
		if counters(change) == base {
			t.Errorf("counters stay although %s changes", name)
		}
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	var texts []string
	for i := range 1000 {
		texts = append(texts, fmt.Sprintf("/api/v%d/{x}", i))
	}
	s := compile(t, texts...)
	var m Match
	for _, p := range []string{"/api/v7/z/y", "/Api/V7/z", "/a%70i/v7;x=1/%2Fz//a/..%2541"} {
		r := &rule.Request{Method: "GET", Path: p}
		_ = s.Find(&m, r)
		if got := testing.AllocsPerRun(100, func() { _ = s.Find(&m, r) }); got != 0 {
			t.Errorf("%s: %v allocations", p, got)
		}
	}
}
