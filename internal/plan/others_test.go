// SPDX-License-Identifier: MIT

package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/rule"
)

// A request with several paths or methods is evaluated by the entries of each of them, in the usual order.
func TestOtherPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := compile(t, "/", "/a", "GET /a/b", "POST /a/b", "/a/{x}", "/c/{x}/d", "DELETE /c", "/e")
	judging := compile(t, "/", "/a", "/e")
	judging.paths.JudgeStrange = true
	all := []string{"/", "/a", "/a/b", "/a//b", "/A/b;v=1", "/c/1/d", "/c", "/x/../e", "/%61/b", "/e%2Fb", "/a/..;/b", "*", ""}
	methods := []string{"GET", "POST", "DELETE", ""}
	for _, set := range []*Set{s, judging} {
		names := func(method, path string) []string {
			n, _ := find(set, &rule.Request{Method: method, Path: path})
			return n
		}
		inOrder := slices.Clone(set.Rules) // fewer segments first
		slices.SortStableFunc(inOrder, func(a, b *Rule) int {
			return strings.Count(a.Name, "/") + min(len(a.URL.String()), 2) - strings.Count(b.Name, "/") - min(len(b.URL.String()), 2)
		})
		for i, path := range all {
			for j, method := range methods {
				other := all[(i*5+j*3+1)%len(all)]
				third, also := all[(i+j)%len(all)], methods[(i+j+1)%len(methods)]
				r := &rule.Request{Method: method, OtherMethods: []string{also}, Path: path, OtherPaths: []string{other, third}}
				got, err := find(set, r)
				want := map[string]bool{}
				var refused *rule.PathError
				for _, p := range []string{path, other, third} {
					for _, m := range []string{method, also} {
						if _, err := find(set, &rule.Request{Method: m, Path: p}); err != nil {
							refused = err
						}
						for _, n := range names(m, p) {
							want[n] = true
						}
					}
				}
				if refused != nil {
					if err != refused || len(got) > 0 {
						t.Errorf("%+v: %v, %v, want that %v", r, got, err, refused)
					}
					continue
				}
				var list []string
				for _, r := range inOrder {
					if want[r.Name] {
						list = append(list, r.Name)
					}
				}
				if !slices.Equal(got, list) {
					t.Errorf("%+v: %v, want %v", r, got, list)
				}
			}
		}
	}
}
