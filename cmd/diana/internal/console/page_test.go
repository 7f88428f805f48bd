// SPDX-License-Identifier: MIT

package console

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// hostile is a name that a client chose.
const hostile = `<img src=x onerror=alert(1)>"'</td><script>alert(2)</script>`

// newPageOf returns the page of a gateway with this state.
func newPageOf(state string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/live", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.ReplaceAll(state, "OFFSET", r.URL.Query().Get("offset")))
	})
	return New(NewAccess(newSite("").access.options), mux)
}

func getPage(h http.Handler, target, language string) string {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept-Language", language)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Body.String()
}

// The page has the rules, the state and the most refused actors without JavaScript, and shows names as text.
func TestPageWithoutJavaScript(t *testing.T) {
	t.Parallel()
	h := newPageOf(fmt.Sprintf(`{"gateway": {"version": "v1", "source": %[1]q, "config_version": "0123456789ab", "degraded": true, "gateways": 2},
		"rules": [{"name": %[1]q, "url": %[1]q, "mode": "shadow", "limit": 5, "unit_seconds": 60, "allowed_per_second": 1.25, "refused_per_second": 31.2, "refused": 77}],
		"rules_total": 1, "top_refused": [{"rule": %[1]q, "actor": %[1]q, "recent": 4321, "recent_exact": false, "per_second": 0.5}, {"rule": "all", "actor": "", "recent": 9, "recent_exact": true}]}`, hostile))
	body := getPage(h, "/?q="+`%22%3E%3Cscript%3E`, "")
	for _, want := range []string{"≤ 4321", "0123456789ab", "5 / 60 s", "1.2", "31", "77", "Degraded", "all actors", "&lt;img src=x onerror=alert(1)&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if found := regexp.MustCompile(`(?i)<img|<script>|\son\w+\s*=\s*["']|style=|"><script`).FindString(strings.ReplaceAll(body, "onerror=alert(1)&gt;", "")); found != "" {
		t.Errorf("the page has %q:\n%s", found, body)
	}
	if strings.Count(body, "<script") != 2 || strings.Count(body, ` src="/console/`) != 2 {
		t.Error("the page has another script than its own")
	}
}

// The page has the sums of the last day without JavaScript, and says of how many gateways, or why of one alone.
func TestPageOfFleet(t *testing.T) {
	t.Parallel()
	const minutes = `"minutes": [{"at": "2026-01-02T03:04:00Z", "allowed": 1000, "refused": 20, "gateways": 9},
		{"at": "2026-01-02T03:05:00Z", "allowed": 1, "refused": 3, "gateways": 4}, {"at": "2026-01-02T03:06:00Z", "allowed": 2, "refused": 0, "gateways": 3}]`
	for fleet, want := range map[string][]string{
		`{"available": true, "reason": "", ` + minutes + `}`:                  {"1003 allowed, 23 refused since 2026-01-02 03:04:00 UTC", "this Redis: 4 in"},
		`{"available": false, "reason": "<b>Redis is away", ` + minutes + `}`: {"1003 allowed", "This gateway alone: &lt;b&gt;Redis is away"},
		`{"available": true, "reason": "", "minutes": []}`:                    nil,
		`no JSON`: nil,
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /api/v1/live", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		mux.HandleFunc("GET /api/v1/fleet", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, fleet) })
		body := getPage(New(NewAccess(newSite("").access.options), mux), "/", "en")
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s: the page does not have %q:\n%s", fleet, text, body)
			}
		}
		if shown := strings.Contains(body, words["en"]["fleet"]); shown != (want != nil) {
			t.Errorf("%s: the section is shown: %v", fleet, shown)
		}
	}
}

// The page links to the next rules as long as there are some.
func TestPageOfRules(t *testing.T) {
	t.Parallel()
	rules := strings.TrimSuffix(strings.Repeat(`{"name": "r-OFFSET", "limit": 1},`, rulesShown), ",")
	h := newPageOf(`{"rules": [` + rules + `], "rules_total": 120}`)
	for offset, next := range map[string]string{"": "offset=50&amp;q=", "50": "offset=100&amp;q=", "100": "", "-7": "offset=50&amp;q=", "x": "offset=50&amp;q="} {
		body := getPage(h, "/?offset="+offset, "")
		if got := strings.Contains(body, "offset="); got != (next != "") || !strings.Contains(body, next) {
			t.Errorf("offset %q: no link with %q", offset, next)
		}
	}
	if !strings.Contains(getPage(h, "/?offset=100", ""), "r-100") {
		t.Error("the page does not ask for later rules")
	}
}

// Without a state the page says so.
func TestPageWithoutState(t *testing.T) {
	t.Parallel()
	if body := getPage(newPageOf("no JSON"), "/", "en"); !strings.Contains(body, words["en"]["no_state"]) {
		t.Error(body)
	}
}

func TestLanguage(t *testing.T) {
	t.Parallel()
	h := newPageOf("{}")
	for _, test := range []struct{ target, accept, want string }{
		{"/", "", "en"},
		{"/", "de-DE, fr;q=0.5", "en"},
		{"/", "zh-CN,zh;q=0.9,en;q=0.8", "zh"},
		{"/", "zh-TW", "zh"},
		{"/", "en;q=0.2, zh;q=0.1", "en"},
		{"/?lang=zh", "en", "zh"},
		{"/?lang=en", "zh", "en"},
		{"/?lang=%22%3E", "zh", "zh"},
		{"/", strings.Repeat("zh,", 5000) + ";;;q=x", "en"},
	} {
		if body := getPage(h, test.target, test.accept); !strings.Contains(body, `<html lang="`+test.want+`">`) || !strings.Contains(body, words[test.want]["top"]) {
			t.Errorf("%s with %.40q is not in %s", test.target, test.accept, test.want)
		}
	}
}

// Both languages have the same words, with the same values within them, and the scripts use no others.
func TestWords(t *testing.T) {
	t.Parallel()
	value := regexp.MustCompile(`\{\w+\}`)
	for name, text := range words["en"] {
		other, ok := words["zh"][name]
		if !ok || other == "" || fmt.Sprint(sorted(value.FindAllString(text, -1))) != fmt.Sprint(sorted(value.FindAllString(other, -1))) {
			t.Errorf("%s: %q and %q", name, text, other)
		}
	}
	if len(words["en"]) != len(words["zh"]) {
		t.Error("the languages have different words")
	}
	used := regexp.MustCompile(`\bt\('(\w+)'`)
	eachPart(t, func(name, text string) {
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			if words["en"][m[1]] == "" {
				t.Errorf("%s uses the word %s, which words.json does not have", name, m[1])
			}
		}
	})
}

func sorted(all []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	return set
}

// The page asks no other site for anything, writes no markup and evaluates no text.
func TestPartsAreSafe(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:|\sstyle=|https?://`)
	allowed := []string{"http://www.w3.org/2000/svg", `xmlns="http://www.w3.org/2000/svg"`, "https://github.com/leeoniya/uPlot"}
	eachPart(t, func(name, text string) {
		for _, a := range allowed {
			text = strings.ReplaceAll(text, a, "")
		}
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		if lines := strings.Count(text, "\n"); lines > 400 {
			t.Errorf("%s has %d lines", name, lines)
		}
	})
}

// eachPart calls f with each file of the page.
func eachPart(t *testing.T, f func(name, text string)) {
	t.Helper()
	err := fs.WalkDir(files, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		f(path.Base(name), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A browser that has a part gets it again only if it is another one.
func TestPart(t *testing.T) {
	t.Parallel()
	s := newSite("")
	first := s.send("GET", "/console/app.js", here, "")
	if first.Code != 200 || first.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || first.Header().Get("Cache-Control") != "no-cache" {
		t.Error(first.Code, first.Header())
	}
	if w := s.send("GET", "/console/app.js", here, "", "If-None-Match", first.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Error(w.Code)
	}
	for _, name := range []string{"index.html", "none", "..%2fpage.go", "%2e%2e%2fpage.go", "page"} {
		if w := s.send("GET", "/console/"+name, here, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}
