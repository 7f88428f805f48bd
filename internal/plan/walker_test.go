// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// deepURLs are URLs with a {name} at every level, which a run of empty segments reaches all.
func deepURLs() []string {
	texts, u := []string{"/"}, ""
	for i := range 40 {
		u += fmt.Sprintf("/{x%d}", i)
		texts = append(texts, u, u+"/a")
	}
	return texts
}

// wideURLs are many URLs below few nodes.
func wideURLs() []string {
	texts := []string{"/", "/{any}/{any}/{any}", "/a/{x}/b/{y}", "/{x}/a/b"}
	for i := range 200 {
		texts = append(texts, fmt.Sprintf("/r%d", i), fmt.Sprintf("/a/r%d/{x}", i), fmt.Sprintf("/r%d/{y}", i))
	}
	return texts
}

// denseURLs are all URLs of a, b and {x}, so that every segment reaches several nodes.
func denseURLs() []string {
	texts, level := []string{"/"}, []string{""}
	for range 5 {
		var next []string
		for _, u := range level {
			next = append(next, u+"/a", u+"/b", u+"/{x}")
		}
		texts, level = append(texts, next...), next
	}
	return texts
}

// worstUnits are what the worst paths repeat. A search that mutates paths at random found most of them.
var worstUnits = []string{
	"/", "a/", "a;/", ";/", "a%2F", "%2F", "%5C", `\`, `\a`, "a.;%252Fb%2F/", "%2561%5Ca;/", "%2525252561", "%25%32%35", ";", ".x", "A",
	"a;/../", "a;/../b;/../", "a;/..//", "//a/", "./.b/", "r1;/../r2;/../", `a/b/a;/../\`, `%2541/a\a/`, `%2541\a`, `.%2561/r1;/../`,
	"%2541", "%2F;%2F", "%252F", "a/a/a//", "a//;/", "%20/",
}

// TestStepsHaveABound bounds what the walk of the worst paths costs, under URLs that an attacker may
// know. The bound is a number of nodes, so it does not depend on the machine.
func TestStepsHaveABound(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	const most = 2000
	worst := 0
	for name, texts := range map[string][]string{"deep": deepURLs(), "wide": wideURLs(), "dense": denseURLs()} {
		s := compile(t, texts...)
		var m Match
		for _, unit := range worstUnits {
			for _, fill := range []string{"A", "%2F", "%2541"} {
				for _, size := range []int{1 << 10, paths.MaxLength} {
					path := longest(&m, s, unit, fill, size)
					worst = max(worst, m.walker.steps)
					if m.walker.steps > most {
						t.Errorf("%s, %d bytes of %q and %q: %d steps, want at most %d: %.60q", name, size, unit, fill, m.walker.steps, most, path)
					}
				}
			}
		}
	}
	t.Logf("at most %d steps", worst)
}

// longest finds the rules of the path that repeats unit and then fill, up to a size, and returns it. It
// repeats unit as often as Find accepts.
func longest(m *Match, s *Set, unit, fill string, size int) string {
	for n := min(size/len(unit), paths.MaxSegments); n >= 0; n -= 1 + n/20 {
		head := "/" + strings.Repeat(unit, n)
		for left := max(size-len(head), 0) / len(fill); ; left /= 2 {
			path := head + strings.Repeat(fill, left)
			if len(path) <= size && s.Find(m, &rule.Request{Path: path}) == nil {
				return path
			}
			if left == 0 {
				break
			}
		}
	}
	return ""
}

// TestFindIsFlat expects that Find looks up, keeps and allocates no more under 100,000 URLs than under
// 10. It sends a plain path, an odd one, and one with too many readings to follow.
func TestFindIsFlat(t *testing.T) {
	short := func(n int) *Set {
		texts := []string{"/", "/api/{x}/orders"}
		for i := range n {
			texts = append(texts, fmt.Sprintf("/api/v%d/orders", i))
		}
		return compile(t, texts...)
	}
	few, many := short(10), short(100_000)
	for _, path := range []string{"/api/v7/orders", "/Api/v7;a/orders%2Fx/./y", "/" + strings.Repeat("api;/v7;/../", 60)} {
		r := &rule.Request{Method: "GET", Path: path}
		var small, large Match
		if few.Find(&small, r) != nil || many.Find(&large, r) != nil {
			t.Fatalf("%.40q is refused", path)
		}
		if got, want := large.walker.steps+large.walker.lookups, small.walker.steps+small.walker.lookups; got != want {
			t.Errorf("%.40q: %d steps and lookups under 100,000 URLs, %d under 10", path, got, want)
		}
		if got, want := cap(large.entries)+cap(large.rules), cap(small.entries)+cap(small.rules); got != want {
			t.Errorf("%.40q: room for %d entries and rules under 100,000 URLs, %d under 10", path, got, want)
		}
		if large.all != small.all || large.all && len(large.Rules) != len(many.Rules) {
			t.Errorf("%.40q: %d rules under 100,000 URLs, all: %v", path, len(large.Rules), large.all)
		}
		if got := testing.AllocsPerRun(20, func() { _ = many.Find(&large, r) }); got != 0 {
			t.Errorf("%.40q: %v allocations", path, got)
		}
	}
}
