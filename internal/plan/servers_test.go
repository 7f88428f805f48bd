// SPDX-License-Identifier: MIT

package plan

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/rule"
)

// server is a model of how a server makes a route of an escaped path: the segments that it
// compares with those of its routes. It is nil if the server refuses the path.
type server struct {
	name  string
	route func(escaped string) []string
	fold  bool // it ignores letter case
}

// servers are those that the documents promise. The models resolve dot segments above the root by
// staying there.
var servers = []server{
	{name: "nginx", route: func(p string) []string { return resolve(split(decode(p)), true) }},
	{name: "nginx without merge_slashes", route: func(p string) []string { return resolve(split(decode(p)), false) }},
	{name: "ServeMux", route: func(p string) []string {
		segments := split(path.Clean(p))
		for i := range segments {
			segments[i] = decode(segments[i])
		}
		return segments
	}},
	{name: "path.Clean", route: func(p string) []string { return split(path.Clean(decode(p))) }},
	{name: "WHATWG URL", route: func(p string) []string {
		segments := whatwg(p)
		for i := range segments {
			segments[i] = decode(segments[i])
		}
		return segments
	}},
	{name: "WHATWG reference", route: func(p string) []string {
		p = strings.ReplaceAll(p, `\`, "/")
		if strings.HasPrefix(p, "//") { // a host
			_, p, _ = strings.Cut(strings.TrimLeft(p, "/"), "/")
		}
		return whatwg(p)
	}},
	{name: "express", route: split, fold: true},
	{name: "Flask", route: func(p string) []string { return merge(split(decode(p))) }},
	{name: "Tomcat", route: func(p string) []string {
		return resolve(split(decode(withoutAllParameters(p))), true)
	}},
	{name: "Tomcat with backslashes", route: func(p string) []string {
		return resolve(split(strings.ReplaceAll(decode(withoutAllParameters(p)), `\`, "/")), true)
	}},
	{name: "Windows", fold: true, route: func(p string) []string {
		segments := split(strings.ReplaceAll(decode(decode(p)), `\`, "/"))
		for i, s := range segments {
			if s != "." && s != ".." {
				segments[i] = strings.TrimRight(s, ". ")
			}
		}
		return resolve(segments, true)
	}},
	{name: "nginx in front of Tomcat", route: func(p string) []string {
		return resolve(split(withoutAllParameters(join(resolve(split(decode(p)), true)))), true)
	}},
	{name: "nginx in front of a second decoding", route: func(p string) []string {
		return resolve(split(decode(join(resolve(split(decode(p)), true)))), true)
	}},
	{name: "a URL parser in front of Flask", route: func(p string) []string {
		return merge(split(decode(join(whatwg(p)))))
	}},
	{name: "ServeMux in front of Flask", route: func(p string) []string { return merge(split(decode(path.Clean(p)))) }},
}

func split(p string) []string { return strings.Split(strings.TrimPrefix(p, "/"), "/") }

func join(segments []string) string { return "/" + strings.Join(segments, "/") }

// decode decodes once. It keeps text that is not an escape.
func decode(p string) string { return string(httptext.Unescape(nil, p)) }

func merge(segments []string) []string {
	return slices.DeleteFunc(segments, func(s string) bool { return s == "" })
}

// resolve resolves dot segments, and drops empty segments if they are to be merged.
func resolve(segments []string, merged bool) (kept []string) {
	for _, s := range segments {
		switch {
		case s == ".", s == "" && merged:
		case s == "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
		}
	}
	return kept
}

// whatwg is the path parser of the URL standard, which decodes nothing but dots.
func whatwg(p string) []string {
	segments := split(strings.ReplaceAll(p, `\`, "/"))
	for i, s := range segments {
		if dots := strings.ReplaceAll(strings.ToLower(s), "%2e", "."); dots == "." || dots == ".." {
			segments[i] = dots
		}
	}
	return resolve(segments, false)
}

func withoutAllParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// checkServers fails if a server serves a path by a rule's url and that rule is not among names.
func checkServers(t *testing.T, s *Set, path string, names []string) {
	t.Helper()
	for _, m := range servers {
		route := m.route(path)
		for _, e := range s.entries {
			if under(split(e.URL.Path), route, m.fold) && !slices.Contains(names, e.URL.String()) {
				t.Fatalf("%q is %q to %s, and judged by %q, want %s among them", path, route, m.name, names, e.URL)
			}
		}
	}
}

// under reports whether a route is covered by the segments of a url.
func under(pattern, route []string, fold bool) bool {
	if len(route) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		p = decode(p)
		switch {
		case httptext.IsWild(p) && route[i] != "", p == route[i], fold && strings.EqualFold(p, route[i]):
		default:
			return false
		}
	}
	return true
}

// tokens returns how many tokens the longest paths have.
func tokens() int {
	if race.Enabled || testing.Short() {
		return 4
	}
	return 6
}

// TestAllSpellings makes all paths of a few tokens, and compares what is evaluated with what the
// models of servers serve.
func TestAllSpellings(t *testing.T) {
	t.Parallel()
	length := tokens()
	s := compile(t, "/a", "/b", "/a/b", "/b/a", "/a/{x}/b", "/a%2Fb")
	for _, alphabet := range [][]string{
		{"/", "a", "b", "..", "."},
		{"/", "a", "b", "..", ";", "%2F"},
		{"/", "a", "b", "..", `\`, "%5C"},
		{"/", "a", "b", "..", "%2F", "%5c"},
		{"/", "A", "b", "/..", ";", " ", "."},
		{"/", "a", "b", "..", "%252F", "%253B"},
		{"/", "%61", "%2562", "%2e", "..", ";"},
		{"/", "a", "/b", "/..", "%255C", "%252e", ";"},
		{"/", "a", "%20", "/..", "%2520", "..", "%3B"},
	} {
		t.Run(strings.Join(alphabet, ""), func(t *testing.T) {
			t.Parallel()
			paths, refused := 0, 0
			var m Match
			var names []string
			var make func(path string, left int)
			make = func(path string, left int) {
				paths++
				if err := s.Find(&m, &rule.Request{Path: path}); err != nil {
					refused++
				} else {
					names = names[:0]
					for _, r := range m.Rules {
						names = append(names, r.Name)
					}
					checkServers(t, s, path, names)
				}
				if left > 0 {
					for _, token := range alphabet {
						make(path+token, left-1)
					}
				}
			}
			make("/", length)
			t.Logf("%d paths, %d of them refused", paths, refused)
		})
	}
}

// TestPlainPathsExactly makes all paths of plain segments, and expects the rules of the resolved
// path and no others.
func TestPlainPathsExactly(t *testing.T) {
	t.Parallel()
	length := tokens()
	s := compile(t, "/", "/a", "/b", "/a/b", "/b/a", "/a/{x}/b")
	var make func(path string, left int)
	make = func(p string, left int) {
		names, err := find(s, &rule.Request{Path: p})
		if clean := path.Clean(p); err == nil {
			for _, e := range s.entries {
				pattern := merge(split(e.URL.Path))
				if got, want := slices.Contains(names, e.URL.String()), under(pattern, merge(split(clean)), false) || under(pattern, split(p), false); got != want {
					t.Fatalf("%q: judged by %s: %v, want %v", p, e.URL, got, want)
				}
			}
		}
		if left > 0 {
			for _, token := range []string{"/a", "/b", "/c", "/..", "/."} {
				make(p+token, left-1)
			}
		}
	}
	for _, token := range []string{"/a", "/b", "/c", "/..", "/."} {
		make(token, length)
	}
}

// checkRoute fails if path is that of a rule's url, and the rule is not among names.
func checkRoute(t *testing.T, s *Set, spelled string, names []string, by, decoded string) {
	t.Helper()
	for _, e := range s.entries {
		if under(split(e.URL.Path), split(path.Clean("/"+decoded)), false) && !slices.Contains(names, e.URL.String()) {
			t.Fatalf("%q is %q to %s, and judged by %q, want %s among them", spelled, decoded, by, names, e.URL)
		}
	}
}
