// SPDX-License-Identifier: MIT

package actors

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/diana-limiter/diana/rule"
)

// These models are what servers read of the cookie "sid" and the parameter "api_key". "" is none.

// cookieOfGo is net/http: the first that it can read.
func cookieOfGo(r *http.Request) string {
	if c, err := r.Cookie("sid"); err == nil {
		return c.Value
	}
	return ""
}

// cookieOfExpress is the package cookie of npm: the first, decoded if it can be.
func cookieOfExpress(r *http.Request) string {
	for pair := range strings.SplitSeq(strings.Join(r.Header["Cookie"], "; "), ";") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Trim(name, " \t") != "sid" {
			continue
		}
		value = strings.Trim(value, " \t")
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if decoded, err := url.PathUnescape(value); err == nil {
			return decoded
		}
		return value
	}
	return ""
}

// cookieOfPHP takes the first, and more names for the same.
func cookieOfPHP(r *http.Request) string {
	for pair := range strings.SplitSeq(strings.Join(r.Header["Cookie"], "; "), ";") {
		name, value, _ := strings.Cut(pair, "=")
		if phpName(name) == "sid" {
			return phpDecoded(value)
		}
	}
	return ""
}

// cookieOfWerkzeug takes the last, and decodes octal numbers between quotes.
func cookieOfWerkzeug(r *http.Request) (last string) {
	for pair := range strings.SplitSeq(strings.Join(r.Header["Cookie"], ";"), ";") {
		name, value, _ := strings.Cut(pair, "=")
		if value = strings.Trim(value, " \t"); strings.Trim(name, " \t") != "sid" {
			continue
		}
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = strings.NewReplacer(`\122`, "R", `\"`, `"`, `\\`, `\`).Replace(value[1 : len(value)-1])
		}
		last = value
	}
	return last
}

// queryOfGo is net/url: the first that can be decoded.
func queryOfGo(r *http.Request) string { return r.URL.Query().Get("api_key") }

// queryOfPHP takes the last, and more names for the same.
func queryOfPHP(r *http.Request) (last string) {
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(pair, "="); phpName(phpDecoded(name)) == "api_key" {
			last = phpDecoded(value)
		}
	}
	return last
}

// queryOfRack is Rack as it was before 2.2.4: semicolons divide too, and the last counts.
func queryOfRack(r *http.Request) (last string) {
	for pair := range strings.FieldsFuncSeq(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
		if name, value, _ := strings.Cut(pair, "="); phpDecoded(name) == "api_key" || phpDecoded(name) == "api_key[]" {
			last = phpDecoded(value)
		}
	}
	return last
}

// queryOfASP takes letters of either case, and ends at a fragment.
func queryOfASP(r *http.Request) string {
	query, _, _ := strings.Cut(r.URL.RawQuery, "#")
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); strings.EqualFold(phpDecoded(name), "api_key") && isASCII(name) {
			return phpDecoded(value)
		}
	}
	return ""
}

func isASCII(s string) bool {
	return strings.IndexFunc(phpDecoded(s), func(c rune) bool { return c > 0x7e }) < 0
}

// phpDecoded is urldecode: what encodes nothing stands for itself.
func phpDecoded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteString(strings.ReplaceAll(s[i:i+1], "+", " "))
	}
	return b.String()
}

// phpName is the name of a variable that PHP makes of a name.
func phpName(name string) string {
	name = strings.TrimLeft(name, " ")
	name, _, _ = strings.Cut(name, "\x00")
	if open := strings.IndexByte(name, '['); open > 0 && strings.Contains(name[open:], "]") {
		name = name[:open]
	}
	return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(name)
}

// served checks that no server reads a value that is not the one that Diana counts by. A server
// may decode it or not. Values that differ by quotes or spaces around them are the same value here.
func served(t *testing.T, r *http.Request, counted string, servers map[string]func(*http.Request) string) {
	t.Helper()
	if counted == rule.Unclear {
		return // the address counts
	}
	for name, read := range servers {
		got := read(r)
		if got != "" && plainValue(got) != plainValue(counted) && plainValue(phpDecoded(got)) != plainValue(counted) {
			t.Errorf("%s reads %q, and Diana counts by %q: %q %q", name, got, counted, r.Header["Cookie"], r.URL.RawQuery)
		}
	}
}

// plainValue returns what values of the same meaning have in common.
func plainValue(value string) string {
	return strings.Trim(strings.ReplaceAll(value, "+", " "), " \t\"")
}

func FuzzCookie(f *testing.F) {
	servers := map[string]func(*http.Request) string{
		"Go": cookieOfGo, "express": cookieOfExpress, "PHP": cookieOfPHP, "Werkzeug": cookieOfWerkzeug,
	}
	f.Fuzz(func(t *testing.T, lines string) {
		r := sent("")
		r.Header["Cookie"] = strings.Split(lines, "\n")
		if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(lines), unicode.IsControl) {
			t.Skip("net/http refuses such a header")
		}
		served(t, r, cookieValue(r, "sid"), servers)
	})
}

func FuzzQuery(f *testing.F) {
	servers := map[string]func(*http.Request) string{
		"Go": queryOfGo, "PHP": queryOfPHP, "Rack": queryOfRack, "ASP.NET": queryOfASP,
	}
	f.Fuzz(func(t *testing.T, query string) {
		if strings.ContainsFunc(query, unicode.IsControl) {
			t.Skip("net/http refuses such a request line")
		}
		r := sent(query)
		served(t, r, queryValue(r, "api_key"), servers)
	})
}

// sent returns a request with that query, as net/http makes it.
func sent(query string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{}, RemoteAddr: "192.0.2.1:1234"}
}
