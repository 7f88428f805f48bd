// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// header makes a header of lines.
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5e8, time.UTC)

func TestLimits(t *testing.T) {
	t.Parallel()
	const date = "Date: Fri, 02 Jan 2026 11:00:00 GMT" // an hour behind
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"none", nil, ""},
		{"Diana's", []string{`RateLimit: "a b";r=7;t=3, "%C3%A9 \"x\"";r=0;t=40`}, `"a b" 7 3s, "%C3%A9 \"x\"" 0 40s`},
		{"lines", []string{`RateLimit: "a";r=7;t=3`, `RateLimit: "b";r=1`}, `"a" 7 3s, "b" 1 1s`},
		{"token", []string{"RateLimit: default; r=7 ;t=3"}, ""}, // no space in front of ;
		{"token and space", []string{"RateLimit: default; r=7; t=3;pk=:YWJj:, x"}, `"default" 7 3s`},
		{"partitions", []string{`RateLimit: "a";r=7;t=3;pk=:YQ==:, "a";r=2;t=1;pk=:Yg==:`}, `"a" 2 3s`},
		{"window instead of t", []string{`RateLimit: "a";r=7`, `RateLimit-Policy: "b";q=1;w=1, "a";q=10;w=60`}, `"a" 7 1m0s`},
		{"t goes first", []string{`RateLimit: "a";r=7;t=5`, `RateLimit-Policy: "a";q=10;w=60`}, `"a" 7 5s`},
		{"bytes", []string{`RateLimit: "a";r=7;t=5, "b";r=0;t=6`, `RateLimit-Policy: "a";q=10;qu="content-bytes", "b";q=1;qu="content-bytes"`}, `"a" 999999999999999 5s, "b" 0 6s`},
		{"no r", []string{`RateLimit: "a";t=5`}, ""},
		{"a fraction", []string{`RateLimit: "a";r=1.5;t=5`}, ""},
		{"broken", []string{`RateLimit: "a";r=7;t=3, "b`}, ""},
		{"broken behind", []string{`RateLimit: "a";r=7;t=3,`}, ""},
		{"not a list", []string{`RateLimit: limit=100, remaining=50`, "RateLimit-Remaining: 50", "RateLimit-Reset: 5"}, `"\x00Ratelimit-" 50 5s`},
		{"newest first", []string{`RateLimit: "a";r=7;t=3`, "RateLimit-Remaining: 50", "X-RateLimit-Remaining: 3"}, `"a" 7 3s`},
		{"older", []string{"RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 50", "RateLimit-Reset: 5"}, `"\x00Ratelimit-" 50 5s`},
		{"older, negative", []string{"RateLimit-Remaining: -3", "RateLimit-Reset: -1"}, `"\x00Ratelimit-" 0 0s`},
		{"X", []string{"X-RateLimit-Remaining: 50", "X-RateLimit-Reset: 5.2"}, `"\x00X-Ratelimit-" 50 6s`},
		{"X, fraction", []string{"X-RateLimit-Remaining: 0.9"}, `"\x00X-Ratelimit-" 0 1s`},
		{"epoch", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767355220"}, `"\x00X-Ratelimit-" 0 20.5s`},
		{"epoch by the server's clock", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767351620", date}, `"\x00X-Ratelimit-" 0 21s`},
		{"epoch in milliseconds", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767355220250"}, `"\x00X-Ratelimit-" 0 20.75s`},
		{"epoch, past", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767355000"}, `"\x00X-Ratelimit-" 0 1s`},
		{"for ever", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 999999999999999"}, `"\x00X-Ratelimit-" 0 744h0m0s`},
		{"too many digits", []string{"X-RateLimit-Remaining: 9999999999999999"}, ""},
		{"no number", []string{"X-RateLimit-Remaining: many"}, ""},
		{"no name", []string{`RateLimit: "";r=7;t=3`}, `"\x00" 7 3s`},
	} {
		var got []string
		for _, f := range limits(header(tc.lines...), noon) {
			got = append(got, fmt.Sprintf("%q %d %v", f.name, f.left, f.resets))
		}
		if s := strings.Join(got, ", "); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, s, tc.want)
		}
	}
}

// Whatever a server sends, nothing panics, and what is read is within bounds.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`"a";r=7;t=3, "b";r=0`, `"a\"b\\";r=1;pk=:YQ==:;x=?1;y=-1.5;z="\\"`, "default;r=1", `"a";r=999999999999999;t=999999999999999`,
		"", ",", ";", `"`, `"\`, "a;", "a;=", "a;b=", " a , b ", "1767355220", "-1", "5.5", "Fri, 02 Jan 2026 11:00:00 GMT",
		strings.Repeat(`"a";r=1, `, 900) + "b",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		for _, names := range [][2]string{
			{"Ratelimit", "Ratelimit-Policy"}, {"Ratelimit-Remaining", "Ratelimit-Reset"}, {"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
			{"Retry-After", "Date"},
		} {
			h := http.Header{names[0]: {one}, names[1]: {other}}
			for _, f := range limits(h, noon) {
				if f.left < 0 || f.left > longest || f.resets < 0 || f.resets > longestReset || f.name == "" {
					t.Errorf("%q %q: %+v", one, other, f)
				}
			}
			if d, _ := retryAfter(&http.Response{StatusCode: 429, Header: h}, noon); d < 0 || d > longestReset {
				t.Errorf("%q %q: %v", one, other, d)
			}
			host := &host{}
			c := &call{folder: "/", under: anyPolicy}
			host.count(c.under, 1)
			host.answered(c, &http.Response{StatusCode: 429, Header: h})
			host.allows(host.policiesOf("/"), noon)
		}
	})
}
