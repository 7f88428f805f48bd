// SPDX-License-Identifier: MIT

package plan

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// TestRefusedPaths sends what no honest client sends.
func TestRefusedPaths(t *testing.T) {
	t.Parallel()
	s, judging := compile(t, "/admin"), compile(t, "/admin", "POST /login", "/")
	judging.paths.JudgeStrange = true
	for reason, list := range map[*rule.PathError][]string{
		paths.ErrControl: {
			"/a%00", "/admin%00.png", "/%0a", "/a%0D%0Ab", "/a%09", "/%7f", "/a\tb", "/a\x7f", "/%2500", "/%25250a", "/a%1f/b",
		},
		paths.ErrEscape: {"/%", "/a%", "/a%4", "/a%zz", "/a%4g/b", "/%%41", "/a%u0041"},
		paths.ErrDots: {
			"/%2e", "/%2e%2e/admin", "/.%2E/admin", "/x/%2e./admin", "/x/..%2fadmin", "/x%2F../admin", "/x%5C..%5Cadmin",
			"/x\\..\\admin", "/..\\admin", "/..;/admin", "/x/..;a=b/admin", "/;../admin/..;", "/.;/admin", "/%252e%252e/admin",
			"/x/..%253B/admin", "/..%20/admin", "/x/.%20/admin", "/x/%20../admin", "/.%2Fadmin", "/0%5C0/..%2fadmin",
			"/x%5Cy%2f../admin", "/%25252e", "/x/. ./admin", "/a%2F.", "/a%2F.;v=1",
		},
		paths.ErrClimbs: {
			"/..", "/../admin", "/a/../../admin", "/a/b/../../../admin", "/;/../../base/login", "/./../x", "//..", "//host/../admin",
			"/%20/../admin", "/.../../x", "/\\x/../admin", "/%5Cx/../admin", "/%2Fx/../admin", "//a/b/../../admin",
		},
		paths.ErrSegments: {
			strings.Repeat("/a", 257), strings.Repeat("/", 258) + "a", "/" + strings.Repeat("a%2F", 257), "/" + strings.Repeat("%5C", 256),
			"/" + strings.Repeat("%255C", 256), strings.Repeat("/.", 257),
		},
		paths.ErrLong: {"/" + strings.Repeat("a", paths.MaxLength), "/" + strings.Repeat("%61", paths.MaxLength/3+1)},
	} {
		for _, p := range list {
			if err := paths.Check(p); err != reason {
				t.Errorf("CheckPath(%.80q): %v, want that %v", p, err, reason)
			}
			if names, err := find(s, &rule.Request{Method: "GET", Path: p}); err != reason || len(names) > 0 {
				t.Errorf("%.80q is evaluated by %v, and refused because %v, want that %v", p, names, err, reason)
			}
			names, err := find(judging, &rule.Request{Method: "GET", Path: p})
			if reason == paths.ErrLong {
				if err != reason {
					t.Errorf("%.20q... with strange: judge: %v", p, err)
				}
			} else if want := []string{"/", "/admin"}; err != nil || !slices.Equal(names, want) {
				t.Errorf("%.80q with strange: judge: %v, %v, want %v", p, names, err, want)
			}
		}
	}
	if paths.ErrLong.Status() != 414 || paths.ErrDots.Status() != 400 {
		t.Error("want 414 for a path that is too long, and 400 for others")
	}
	for _, p := range []string{"", "admin", "*", "http://h/admin"} {
		if err := paths.Check(p); err != paths.ErrRelative {
			t.Errorf("CheckPath(%.80q): %v, want that %v", p, err, paths.ErrRelative)
		}
	}
}

// TestAcceptedPaths sends what is odd and yet accepted.
func TestAcceptedPaths(t *testing.T) {
	t.Parallel()
	s := compile(t, "/admin")
	for _, p := range []string{
		"/", "/a", "/a/", "//", "/a//b", "/a/./b", "/a/../b", "/a/b/../../c", "/.", "/a/..", "/...", "/a...b", "/a.", "/a/.b", "/..a/b", "/a..",
		"/a%20b", "/a%2Fb", "/a%5Cb", "/a\\b", "/a;v=1", "/;", "/a%25", "/100%25zz", "/a%2541", "/%E4%B8%AD", "/~me", "/@a%2fb", "/a+b", "/a:b",
		"/a,b", "/a(1)", "/a='x y'", "/a%22b", "/A", "/%F0%9F%92%A9", "//host/a/../b", "/a;x/../b", "/a%2Fb/../c", "/ ", "/a b",
		strings.Repeat("/a", 256), strings.Repeat("/a", 256) + "/", "/" + strings.Repeat("a", paths.MaxLength-1),
	} {
		if err := paths.Check(p); err != nil {
			t.Errorf("CheckPath(%.80q): %v", p, err)
		}
		if _, err := find(s, &rule.Request{Method: "GET", Path: p}); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// TestNoSpellingEscapes sends spellings that some server takes for /admin.
func TestNoSpellingEscapes(t *testing.T) {
	t.Parallel()
	s := compile(t, "/admin", "/admin/users")
	for _, p := range []string{
		"/admin", "/admin/", "//admin", "/./admin", "/x/../admin", "/%61dmin", "/%61%64%6D%69%6e", "/ADMIN", "/aDmIn/x", "/%41dmin",
		"/admin;v=1", "/admin;", "/;/admin", "/x;/../admin;a=b;c", "/admin%3Bv=1", "/admin.", "/admin..", "/admin%20", "/admin%20.", "/admin.;x",
		"/%2Fadmin", "/admin%2F", "/admin%2Fx", "/\\admin", "/admin\\", "/admin%5Cx", "/admin%255Cx", "/admin%252Fx", "/admin%253Bx",
		"/%2561dmin", "/%25252561dmin", "/%2541dmin", "/admin/../admin", "/admin/./", "///admin///", "/x;a%2Fb/../admin",
		"/admin//..", "/admin//../z", "//x/admin", "//x//admin/", "///x/admin", "/\\x/admin", "/%5C%5Cx%5Cadmin", "/\\\\x\\admin",
		"/a%2Fb/../admin", "/admin%2Fb/../c", "/x%2F/../admin", "/ /admin", "/.../admin", "/admin;a%2F/../b", "/admin;x%2Fy/z",
		"/admin/..", "/admin/../public", // to a router that does not resolve dot segments
	} {
		if got := urls(t, s, "GET", p); !slices.Contains(got, "/admin") {
			t.Errorf("%q is judged by %v, want /admin among them", p, got)
		}
	}
	for _, p := range []string{"/", "/administrator", "/x/admin", "/admi", "/adminx;/", "/admin.txt", "/a%2Fadmin"} {
		if got := urls(t, s, "GET", p); slices.Contains(got, "/admin") {
			t.Errorf("%q is judged by %v, want /admin not among them", p, got)
		}
	}
	exact, err := Compile([]rule.Entry{{URL: pattern(t, "/admin"), Rules: []rule.Rule{perSecond("/admin")}}, {URL: pattern(t, "/Admin"), Rules: []rule.Rule{perSecond("/Admin")}}}, rule.Identity{}, rule.Paths{ExactCase: true}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{"/admin": {"/admin"}, "/Admin": {"/Admin"}, "/%41dmin": {"/Admin"}, "/ADMIN": {}, "/ADMIN;": {}} {
		if got := urls(t, exact, "GET", path); !slices.Equal(got, want) {
			t.Errorf("with case: exact %q is judged by %q, want %q", path, got, want)
		}
	}
}

// TestReadings shows for each reading what it covers.
func TestReadings(t *testing.T) {
	t.Parallel()
	s := compile(t, "/", "/a", "/a/b", "/a/b;v=1", "/a%2Fb", "/a/{id}/b", "/c%5Cd", "/e%25f", "/G")
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"/a/b", []string{"/", "/a", "/a/b"}},
		{"/a%2Fb", []string{"/", "/a", "/a%2Fb", "/a/b"}},
		{"/a/b;v=1", []string{"/", "/a", "/a/b", "/a/b;v=1"}},
		{"/a;x%2Fb", []string{"/", "/a", "/a/b"}},
		{"/a//b", []string{"/", "/a", "/a/b", "/a/{id}/b"}},
		{"/a/x/../b", []string{"/", "/a", "/a/b"}},
		{"/a/../G", []string{"/", "/a", "/G"}},
		{"/a/./b", []string{"/", "/a", "/a/b", "/a/{id}/b"}},
		{"/c%5Cd", []string{"/", "/c\\d"}},
		{"/e%25f", []string{"/", "/e%25f"}},
		{"/g", []string{"/", "/G"}},
		{"/a/B.", []string{"/", "/a", "/a/b"}},
		{"//a/b", []string{"/", "/a", "/a/b"}},
		{"//h/a/b", []string{"/", "/a", "/a/b"}},
		{"/h//a/b", []string{"/"}},
	} {
		got := urls(t, s, "GET", tc.path)
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "%5C", `\`)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q is judged by %v, want %v", tc.path, got, tc.want)
		}
	}
}

// TestManyReadings sends a path that is too much to follow, so all entries evaluate it.
func TestManyReadings(t *testing.T) {
	t.Parallel()
	texts := []string{"/"}
	path := ""
	for i := range 60 {
		name := "/r" + string(rune('A'+i%26)) + strings.Repeat("x", i/26)
		texts = append(texts, name)
		path += name + ";/.."
	}
	s := compile(t, append(texts, "/never")...)
	if got := urls(t, s, "GET", path+"/z"); len(got) != len(texts)+1 {
		t.Errorf("judged by %d entries, want all %d", len(got), len(texts)+1)
	}
	if got := urls(t, s, "GET", "/ra;/../z"); !slices.Equal(got, []string{"/", "/rA"}) {
		t.Errorf("judged by %q", got)
	}
}

// TestMethods compares methods without letter case, and those that a field puts in their place.
func TestMethods(t *testing.T) {
	t.Parallel()
	s := compile(t, "POST /login", "GET /login", "DELETE /login", "/login")
	for _, tc := range []struct {
		method string
		header http.Header
		want   []string
	}{
		{"POST", nil, []string{"POST /login", "/login"}},
		{"post", nil, []string{"POST /login", "/login"}},
		{"Head", nil, []string{"GET /login", "/login"}},
		{"GET", http.Header{"X-Http-Method-Override": {"POST"}}, []string{"POST /login", "GET /login", "/login"}},
		{"POST", http.Header{"X-Http-Method": {" delete "}}, []string{"POST /login", "DELETE /login", "/login"}},
		{"PUT", http.Header{"X-Http-Method-Override": {"post,GET"}}, []string{"POST /login", "GET /login", "/login"}},
		{"PUT", http.Header{"X-Http-Method-Override": {"x,,, ,x"}}, []string{"/login"}},
		{"PUT", http.Header{"X-Http-Method-Override": {strings.Repeat("x,", 10)}}, []string{"POST /login", "GET /login", "DELETE /login", "/login"}},
		{"PUT", http.Header{"X-Method-Override": {"HEAD", "post"}}, []string{"POST /login", "GET /login", "/login"}},
	} {
		h := &http.Request{Header: tc.header}
		if got, err := find(s, &rule.Request{Method: tc.method, Path: "/login", HTTP: h}); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s with %v: %q, %v, want %q", tc.method, tc.header, got, err, tc.want)
		}
	}
	for _, p := range []string{"*", ""} {
		if got := urls(t, compile(t, "/", "/x"), "OPTIONS", p); !slices.Equal(got, []string{"/"}) {
			t.Errorf("OPTIONS %s: %q", p, got)
		}
	}
}

// FuzzPath compares what is evaluated with what servers serve.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"", "/", "/a/../b", "/%2e%2e%2f", "/a;b=c/..;/d", "/%252525", "\\a\\..\\b", "/a%", "/%zz%", "/x\x00%00", "/b%2Fa/../a", "//a//b", "/A%5cb;a"} {
		f.Add(p)
	}
	s := compile(f, "/a", "/a/b", "/b/a", "/a/{x}/b")
	f.Fuzz(func(t *testing.T, p string) {
		clean := httptext.CleanPath(p)
		if again := httptext.CleanPath(clean); again != clean {
			t.Fatalf("CleanPath(%q) = %q, and of that %q", p, clean, again)
		}
		names, err := find(s, &rule.Request{Path: p})
		if strange := paths.Check(p); strange != err && p != "*" && p != "" {
			t.Fatalf("%q: CheckPath says %v, and Find %v", p, strange, err)
		}
		if err != nil {
			return
		}
		if p == "*" || p == "" {
			return
		}
		checkServers(t, s, p, names)
		// What net/url makes of it as a reference.
		if ref, err := url.ParseRequestURI(p); err == nil && ref.Host == "" && !strings.Contains(p, "?") {
			checkRoute(t, s, p, names, "net/url", new(url.URL).ResolveReference(ref).Path)
		}
	})
}
