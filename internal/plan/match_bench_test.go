// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// BenchmarkFind finds the rules of ordinary paths among those of a thousand urls.
func BenchmarkFind(b *testing.B) {
	texts := []string{"/", "/api"}
	for i := range 1000 {
		texts = append(texts, fmt.Sprintf("/api/v%d/users/{id}/orders", i))
	}
	benchmarkPaths(b, compile(b, texts...), map[string]string{
		"plain":      "/api/v7/users/4711/orders",
		"capitals":   "/Api/v7/Users/4711/orders",
		"encoded":    "/api/v7/users/J%C3%BCrgen%20K/orders",
		"slash":      "/api/v7/users/group%2Fproject/orders",
		"parameters": "/api/v7/users/4711;v=1/orders",
		"dots":       "/api/v8/../v7/users/4711/orders",
	})
}

// BenchmarkWorstPath finds the rules of accepted paths that take as long as possible, of 1 KiB and of
// MaxPath, under urls that an attacker knows.
func BenchmarkWorstPath(b *testing.B) {
	texts := []string{"/", "/{any}/{any}/{any}", "/a/{x}/b/{y}", "/{x}/a/b"}
	for i := range 200 {
		texts = append(texts, fmt.Sprintf("/r%d", i), fmt.Sprintf("/a/r%d/{x}", i))
	}
	s := compile(b, texts...)
	for _, size := range []int{1 << 10, paths.MaxLength} {
		fill := func(unit string) string {
			n := min(size/len(unit), paths.MaxSegments/max(strings.Count(unit, "/")+strings.Count(unit, "%2F")+strings.Count(unit, "%5C")+strings.Count(unit, "%252F"), 1)-1)
			p := strings.Repeat(unit, n)
			return "/" + p + strings.Repeat("A", max(size-len(p)-1, 0))
		}
		climbing := ""
		for i := 0; len(climbing) < size-20 && i < 120; i++ {
			climbing += fmt.Sprintf("/r%d;/..", i%200)
		}
		benchmarkPaths(b, s, map[string]string{
			fmt.Sprintf("%d segments", size):    fill("a/"),
			fmt.Sprintf("%d slashes", size):     fill("/"),
			fmt.Sprintf("%d parameters", size):  fill("a;/"),
			fmt.Sprintf("%d divided", size):     fill("a%2F"),
			fmt.Sprintf("%d all", size):         fill("a.;%252Fb%2F/"),
			fmt.Sprintf("%d twice", size):       fill("%2561%5Ca;/"),
			fmt.Sprintf("%d escapes", size):     fill("%2525252561"),
			fmt.Sprintf("%d semicolons", size):  fill(";"),
			fmt.Sprintf("%d dots", size):        fill("."),
			fmt.Sprintf("%d one segment", size): fill("A"),
			fmt.Sprintf("%d up", size):          fill("a;/../"),
			fmt.Sprintf("%d up again", size):    climbing,
		})
	}
}

func benchmarkPaths(b *testing.B, s *Set, paths map[string]string) {
	for name, path := range paths {
		b.Run(name, func(b *testing.B) {
			var m Match
			r := &rule.Request{Method: "GET", Path: path}
			if err := s.Find(&m, r); err != nil {
				b.Fatalf("%v: %.80s", err, path)
			}
			b.ReportAllocs()
			for b.Loop() {
				_ = s.Find(&m, r)
			}
		})
	}
}
