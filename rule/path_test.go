// SPDX-License-Identifier: MIT

package rule

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, want string }{
		{"", "/"},
		{"/", "/"},
		{"//", "/"},
		{"/sample", "/sample"},
		{"/sample/", "/sample"},
		{"//sample", "/sample"},
		{"/./sample", "/sample"},
		{"/sample/.", "/sample"},
		{"/%73ample", "/sample"},
		{"/sample/../sample", "/sample"},
		{"/a/b/../../../sample", "/sample"},
		{"/..", "/"},
		{"/%2e%2E/sample", "/sample"},
		{"/.well-known/...", "/.well-known/..."},
		{"/Sample", "/Sample"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%2fb", "/a%2Fb"},
		{"/a%25b", "/a%25b"},
		{"/a%2541", "/a%2541"},
		{"/a%", "/a%25"},
		{"/a%zz", "/a%25zz"},
		{"/a;v=1", "/a;v=1"},
		{"/a%20b", "/a b"},
		{"sample", "/sample"},
		{"/%E4%B8%AD", "/中"},
		{"/" + strings.Repeat("x", 300) + "/", "/" + strings.Repeat("x", 300)},
	} {
		if got := CleanPath(tc.path); got != tc.want {
			t.Errorf("CleanPath(%q) = %q, want %q", tc.path, got, tc.want)
		}
	}
}

// Every spelling of a path that some server takes for /admin is judged by its rules.
func TestNoSpellingEscapes(t *testing.T) {
	t.Parallel()
	s := compile(t, "/admin", "/admin/users")
	for _, p := range []string{
		"/admin", "/admin/", "//admin", "/./admin", "/x/../admin", "/%61dmin", "/%61%64%6D%69%6e",
		"/admin;v=1", "/admin;", "/;/admin", "/x/..;/admin", "/x;/../admin;a=b;c", "/admin%3Bv=1",
		"/%2Fadmin", "/admin%2F", "/admin%2Fx", "/x%2F..%2Fadmin", "/x/..%2fadmin", "/x/%2e%2e/admin",
		"/x%5C..%5Cadmin", "/x\\..\\admin", "\\admin", "/admin\\", "/.%2Fadmin",
		"/%2561dmin", "/%252e%252e/admin", "/x%252F..%252Fadmin", "/%25252561dmin", "/x/..%253B/admin",
		"/admin/../admin", "/admin/./", "///admin///",
		"/admin//..", "/admin//../z", "/admin/;/..", "//x/admin", "//x//admin/", "/x//..//../admin", "/admin/%2F..",
		"/x%2F..%2Fadmin;%2F..", "/x%2F..%2Fadmin;a%2F../", "/x%252F..%252Fadmin;%252F..", // parameters go first
		"/x%2Fy/../z%2F..%2Fadmin", "/x%2Fy/%2E./z%5C..%5Cadmin", "/..%2Fadmin%2Fz/%2e%2e/..", // dot segments go first
		"//x/y%2Fz/../z%2F..%2Fadmin",
	} {
		if got := urls(s, "GET", p); !slices.Contains(got, "/admin") {
			t.Errorf("%q is judged by %v, want /admin among them", p, got)
		}
	}
	for _, p := range []string{"/", "/administrator", "/Admin", "/x/admin", "/admin/..", "/admi", "/adminx;/"} {
		if got := urls(s, "GET", p); slices.Contains(got, "/admin") {
			t.Errorf("%q is judged by %v, want /admin not among them", p, got)
		}
	}
}

// Each reading alone covers what a server with exactly those habits serves.
func TestReadings(t *testing.T) {
	t.Parallel()
	s := compile(t, "/", "/a", "/a/b", "/a/b;v=1", "/a%2Fb")
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"/a/b", []string{"/", "/a", "/a/b"}},
		{"/a%2Fb", []string{"/", "/a", "/a%2Fb", "/a/b"}},
		{"/a/b;v=1", []string{"/", "/a", "/a/b", "/a/b;v=1"}},
		{"/a;x%2Fb", []string{"/", "/a", "/a/b"}},
	} {
		if got := urls(s, "GET", tc.path); !slices.Equal(got, tc.want) {
			t.Errorf("%q is judged by %v, want %v", tc.path, got, tc.want)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, p := range []string{"", "/", "/a/../b", "/%2e%2e%2f", "/a;b=c/..;/d", "/%252525", "\\a\\..\\b", "/a%", "/%zz%", "/x\x00%00"} {
		f.Add(p)
	}
	s := compile(f, "/admin")
	f.Fuzz(func(t *testing.T, p string) {
		clean := CleanPath(p)
		if again := CleanPath(clean); again != clean {
			t.Fatalf("CleanPath(%q) = %q, and of that %q", p, clean, again)
		}
		if clean[0] != '/' || len(clean) > 1 && clean[len(clean)-1] == '/' || strings.Contains(clean, "//") || strings.Contains(clean+"/", "/../") || strings.Contains(clean+"/", "/./") {
			t.Fatalf("CleanPath(%q) = %q, which is not clean", p, clean)
		}
		if plain(p) && clean != p {
			t.Fatalf("%q counts as clean, but CleanPath makes it %q", p, clean)
		}
		for _, r := range readings {
			once := string(appendClean(nil, p, r))
			if CleanPath(once) != once {
				t.Fatalf("reading %+v of %q is %q, which is not clean", r, p, once)
			}
		}
		// What net/url and path make of it is what most Go servers serve, some of them after
		// it has been resolved as a reference is.
		u, err := url.PathUnescape(p)
		served := err == nil && path.Clean("/"+u) == "/admin"
		if ref, err := url.ParseRequestURI(p); err == nil && ref.Host == "" {
			served = served || path.Clean(new(url.URL).ResolveReference(ref).Path) == "/admin"
		}
		if served && !slices.Contains(urls(s, "GET", p), "/admin") {
			t.Fatalf("%q is served as /admin, and not judged by its rules", p)
		}
	})
}
