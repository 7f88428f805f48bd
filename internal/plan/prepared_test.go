// SPDX-License-Identifier: MIT

package plan

import (
	"net/http"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/diana-limiter/diana/rule"
)

// A Prepared finds what the Set finds, whichever Set was asked before and whatever the request says.
func TestPrepared(t *testing.T) {
	t.Parallel()
	judging := compile(t, "/", "/a", "POST /e")
	judging.paths.JudgeStrange = true
	sets := []*Set{compile(t, "/", "/a", "GET /a/b", "POST /a/b", "/a/{x}", "DELETE /a"), compile(t, "/a/b", "/c"), judging}
	paths, methods := []string{"/", "/a", "/a/b", "/A/b;v=1", "/c", "/a/..;/b", "*", "", "/\x00"}, []string{"GET", "POST", "DELETE", ""}
	header := http.Header{"X-Http-Method-Override": {"DELETE"}}
	for _, path := range paths {
		for _, method := range methods {
			p := Prepared{Method: method, Path: path}
			for _, r := range []rule.Request{
				{Method: method, Path: path}, {Method: method, Path: path},
				{Method: method, Path: path, HTTP: &http.Request{Header: header}},
				{Method: method, Path: path, HTTP: &http.Request{}},
				{Method: method, Path: path, OtherPaths: []string{"/c"}}, {Method: method, Path: path, OtherMethods: []string{"POST"}},
				{Method: "POST", Path: path}, {Method: method, Path: "/a"}, {Method: method, Path: path},
			} {
				for i, s := range sets {
					var got, want Match
					strange := s.Find(&want, &r)
					if err := p.Find(s, &got, &r); err != strange || strange == nil && !slices.Equal(got.Rules, want.Rules) {
						t.Fatalf("set %d, %s %q prepared: %+v has %v, %v, want %v, %v", i, method, path, r, got.Rules, err, want.Rules, strange)
					}
				}
			}
		}
	}
}

// A Prepared that nobody uses any more does not keep the Set that it was used with.
func TestPreparedKeepsNoSet(t *testing.T) {
	t.Parallel()
	p := Prepared{Path: "/a"}
	old := func() weak.Pointer[Set] {
		s := compile(t, "/", "/a")
		if err := p.Find(s, &Match{}, &rule.Request{Path: "/a"}); err != nil {
			t.Fatal(err)
		}
		return weak.Make(s)
	}()
	for range 10 {
		if runtime.GC(); old.Value() == nil {
			break
		}
	}
	if old.Value() != nil {
		t.Error("the Set is still there after garbage collections")
	}
	runtime.KeepAlive(&p)
}
