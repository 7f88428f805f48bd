// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// sent returns a request with that query and those header lines, as net/http makes it.
func sent(query string, headers ...string) *rule.Request {
	r := &http.Request{Method: "GET", URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{}, RemoteAddr: "192.0.2.1:1234"}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return &rule.Request{Method: "GET", Path: "/", HTTP: r}
}

// address is the key of a request whose source names nobody, or several.
const address = "ip=192.0.2.1;"

// One cookie has one identity, in whatever way a client spells it.
func TestCookieSpellings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", actors.MostRead)
	for lines, want := range map[string]string{
		"sid=REAL":                    "REAL",
		"sid=%52EAL":                  "REAL", // express, Rack, PHP
		"sid=%52%45%41%4c":            "REAL",
		"sid=%2552EAL":                "%52EAL", // once
		`sid="REAL"`:                  "REAL",   // net/http, express, Flask
		`sid="%52EAL"`:                "REAL",
		"sid= REAL ; x=y":             "REAL",
		" sid =REAL":                  "REAL",
		"x=y;sid=REAL":                "REAL",
		"x=y\nsid=REAL":               "REAL",
		"sid=REAL; sid=REAL":          "REAL",
		"sid=REAL\nsid=REAL":          "REAL",
		"SID=REAL":                    "REAL", // ASP.NET
		"sid=a+b":                     "a b",  // PHP, Rack
		"sid=a%20b":                   "a b",
		"sid=a b":                     "a b",
		"sid=a%2Bb":                   "a b", // express reads a+b so
		"sid=a=b":                     "a=b",
		"sid=a,b":                     "a,b",
		"asid=x; sidd=y; si=z":        "",
		"sid":                         "",
		"sid=":                        "",
		`sid=""`:                      "",
		"sid=; sid=":                  "",
		"x=sid=REAL":                  "",
		"sid=REAL; sid=other":         "", // several
		"sid=REAL\nsid=other":         "",
		"sid=REAL; SID=other":         "",
		"SID=other; sid\xa0=REAL":     "", // Flask strips spaces of Latin-1
		"\xa0sid=REAL; sid=other":     "",
		"SID=other; sid\x85=REAL":     "",
		"sid=other; \xc2\xa0sid=REAL": "", // Django, of UTF-8
		"\xa0sid=REAL":                "REAL",
		"sid=j:1":                     "", // cookie-parser reads JSON
		"sid=j%3A%20%22REAL%22":       "",
		"sid=REAL; sid=":              "",
		"sid=REAL; sid=%52EAL":        "", // the same, but it takes reading each to tell
		`sid="\122EAL"`:               "", // REAL for Flask, none for net/http
		`sid="\122EAL"; sid=other`:    "",
		`sid="RE"AL"`:                 "",
		"sid=%zz":                     "", // as it is for some, none for others
		"sid=REAL%":                   "",
		"sid=%zz; sid=other":          "",
		"sid=RÉAL":                    "",
		"x=" + long + "\nsid=REAL":    "", // too much to read
		"x=" + long + "; sid=REAL":    "",
		strings.Repeat("\n", 9000):    "",
		strings.Repeat("x=y;", actors.MostPairs-1):            "",
		strings.Repeat("x;", actors.MostPairs) + "sid=REAL":   "",
		strings.Repeat("x;", actors.MostPairs-1) + "sid=REAL": "REAL",
		"sid=" + long[:actors.MostValue+1]:                    "",
		"sid=" + long[:actors.MostValue]:                      "sha256",
	} {
		r := sent("")
		r.HTTP.Header["Cookie"] = strings.Split(lines, "\n")
		checkSpelling(t, "cookie:sid", lines, key(t, r, "cookie:sid"), want)
	}
}

// One parameter of a query has one identity, in whatever way a client spells it.
func TestQuerySpellings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("q", actors.MostRead)
	for query, want := range map[string]string{
		"api_key=REAL":                "REAL",
		"api_key=%52EAL":              "REAL",
		"api_key=%2552EAL":            "%52EAL", // once
		"%61pi_ke%79=REAL":            "REAL",
		"API_Key=REAL":                "REAL", // ASP.NET
		"api.key=REAL":                "REAL", // PHP, and the next five
		"api+key=REAL":                "REAL",
		"api%20key=REAL":              "REAL",
		"api[key=REAL":                "REAL",
		"%20api_key=REAL":             "REAL",
		"api_key%00x=REAL":            "REAL",
		"api_key[]=REAL":              "REAL", // qs, Rack
		"api_key%5B0%5D=REAL":         "REAL",
		"api_key=a+b":                 "a b",
		"api_key=a%20b":               "a b",
		"api_key=a%2Bb":               "a b", // what does not read forms takes a+b so
		"x=y&api_key=REAL":            "REAL",
		"&&api_key=REAL&":             "REAL",
		"api_key=REAL&api_key=REAL":   "REAL",
		"api_key=a=b":                 "a=b",
		"api_key=\"REAL\"":            "\"REAL\"",
		"":                            "",
		"api_key":                     "",
		"api_key=":                    "",
		"api_key=&api_key":            "",
		"apikey=x&api_keys=y&api_k=z": "",
		"x=api_key=REAL":              "",
		"api_key=REAL&api_key=other":  "", // several
		"api_key=REAL&api.key=other":  "",
		"api_key=other&api_key[]=a":   "",
		"API_KEY=other&[api_key]=a":   "", // qs
		"api_key=other&%5Bapi_key%5D": "",
		"api_key=other&[api_key]x=a":  "",
		"api_key=other&[[api_key=a":   "", // Rack
		"api_key=other&api_key]=a":    "",
		"[api_key]=REAL":              "REAL",
		"api_key=REAL&api_key=":       "",
		"api_key=other;x":             "", // none for net/http
		"api_key=other&x=y;api_key=a": "", // the second for old Rack
		"x;api_key=REAL":              "",
		"api_key=other#&api_key=REAL": "", // the end for nginx
		"x=y#&api_key=REAL":           "",
		"x=y;z":                       "",
		"api_key=%zz":                 "", // as it is for some, none for others
		"api_key=REAL%":               "",
		"api_key=%zz&api_key=other":   "",
		"x=" + long + "&api_key=REAL": "", // too much to read
		strings.Repeat("x&", actors.MostPairs) + "api_key=REAL":   "",
		strings.Repeat("x&", actors.MostPairs-1) + "api_key=REAL": "REAL",
		"api_key=" + long[:actors.MostValue+1]:                    "",
		"api_key=" + long[:actors.MostValue]:                      "sha256",
	} {
		checkSpelling(t, "query:api_key", query, key(t, sent(query), "query:api_key"), want)
	}
}

// One field has one identity, in whatever way a client spells it.
func TestHeaderSpellings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("h", actors.MostValue)
	for lines, want := range map[string]string{
		"REAL":        "REAL",
		" REAL\t":     "REAL",
		"REAL\nREAL":  "REAL",
		"%52EAL":      "%52EAL", // nobody decodes a field
		"a+b":         "a+b",
		"a, b":        "a, b",
		"real":        "real",
		long:          "sha256",
		"":            "",
		" ":           "",
		"\n":          "",
		"REAL\nother": "", // several
		"REAL\n":      "",
		"\nREAL":      "",
		long + "h":    "", // too much to read
		strings.Repeat("REAL\n", mostLines-1) + "REAL": "REAL",
		strings.Repeat("REAL\n", mostLines) + "REAL":   "",
	} {
		r := sent("")
		r.HTTP.Header["X-Key"] = strings.Split(lines, "\n")
		checkSpelling(t, "header:X-Key", lines, key(t, r, "header:X-Key"), want)
	}
	for _, actor := range []string{"host", "header:Host"} {
		r := sent("")
		r.HTTP.Host = "H.:080"
		checkSpelling(t, actor, r.HTTP.Host, key(t, r, actor), "h")
		r.HTTP.Host = long + "h"
		checkSpelling(t, actor, "much", key(t, r, actor), "")
	}
}

// checkSpelling checks the key of a request whose source has the value want; "" if the
// address counts, and sha256 for a value that is hashed.
func checkSpelling(t *testing.T, source, text, got, want string) {
	t.Helper()
	text = fmt.Sprintf("%.60q", text)
	switch want {
	case "":
		want = address
	case "sha256":
		if !strings.HasPrefix(got, source+"=sha256:") {
			t.Errorf("%s: %s is %.80q, want a hash", source, text, got)
		}
		return
	default:
		want = fmt.Sprintf("%s=%d:%s;", source, len(want), want)
	}
	if got != want {
		t.Errorf("%s: %s is %.80q, want %q", source, text, got, want)
	}
}

// If one source of a request names several accounts, the rule counts the address. Diana does not
// ask the next sources, because the upstream may believe one of those accounts.
func TestUnclearEndsTheChain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		request *rule.Request
		want    string
	}{
		{sent("", "Cookie", "account=bob"), "cookie:account=3:bob;"},
		{sent("", "X-Account-Id", "", "Cookie", "account=bob"), "cookie:account=3:bob;"},
		{sent("", "X-Account-Id", "ann", "X-Account-Id", "eve", "Cookie", "account=bob"), address},
	} {
		if got := key(t, tc.request, "account"); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.request.HTTP.Header, got, tc.want)
		}
		if got := key(t, tc.request, "account", "header:X-Key"); got != tc.want+address {
			t.Errorf("%v: %q, want %q", tc.request.HTTP.Header, got, tc.want+address)
		}
	}
}

// An exception means its actor in every spelling, of the client's and of the configuration's.
func TestExceptionSpellings(t *testing.T) {
	t.Parallel()
	compile := func(actor string, except, over []string) (*Set, error) {
		a := parseActor(actor)
		r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 10, Unit: time.Second}, Actor: []rule.Actor{a}}
		for _, value := range except {
			r.Except = append(r.Except, rule.Who{Value: value})
		}
		for _, value := range over {
			r.Overrides = append(r.Overrides, rule.Override{Who: rule.Who{Value: value}})
		}
		id := identity(t)
		id.Account = append(id.Account, rule.Actor{Kind: "host"})
		return Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, id, rule.Paths{}, actors.Kinds())
	}
	host := sent("")
	host.HTTP.Host = "H.:080"
	for _, tc := range []struct {
		actor, value string
		request      *rule.Request
	}{
		{"cookie:sid", "mal/ory", sent("", "Cookie", `sid="%6Dal%2fory"`)},
		{"cookie:sid", "mal%2Fory", sent("", "Cookie", "sid=mal/ory")},
		{"cookie:sid", "a+b", sent("", "Cookie", "sid=a%20b")},
		{"query:key", "a+b", sent("key=a%2bb")},
		{"query:key", "100%", sent("key=100%25")},
		{"host", "h", host},
		{"host", "H:80", host},
		{"header:Host", "H:443", host},
		{"header:X-Key", "a+b", sent("", "X-Key", " a+b")},
		{"header:X-Key", "a%20b", sent("", "X-Key", "a%20b")},
		{"account", "a%20b", sent("", "X-Account-Id", "a%20b")},
		{"account", "a%20b", sent("", "Cookie", "account=a+b")},
		{"account", "H:80", host},
	} {
		excepting, err := compile(tc.actor, []string{tc.value}, nil)
		if err != nil {
			t.Fatal(err)
		}
		overriding, err := compile(tc.actor, nil, []string{tc.value})
		if err != nil {
			t.Fatal(err)
		}
		if x := explain(t, excepting, tc.request)[0]; !x.Excepted || x.By.Value != tc.value {
			t.Errorf("%s: %q is not excepted for %q: %+v", tc.actor, tc.value, x.Key, x.By)
		}
		if x := explain(t, overriding, tc.request)[0]; x.Rule.Limit.N != 0 || x.By.Value != tc.value {
			t.Errorf("%s: %q has no override for %q: %+v", tc.actor, tc.value, x.Key, x.By)
		}
	}
	for _, tc := range []struct {
		actor        string
		except, over []string
		want         string
	}{
		{"host", []string{"h", "H:80"}, nil, "except: H:80 is there twice"},
		{"cookie:sid", nil, []string{"a b", "a%2Bb"}, "overrides: a%2Bb is there twice"},
		{"query:key", []string{"a b"}, []string{"a+b"}, "overrides: a+b is in except"},
		{"account", []string{"a b"}, []string{"a+b"}, "overrides: a+b is in except"},
		{"header:X-Key", []string{"a b"}, []string{"a+b"}, ""},
	} {
		_, err := compile(tc.actor, tc.except, tc.over)
		if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s, except %q, overrides %q: %v, want %q", tc.actor, tc.except, tc.over, err, tc.want)
		}
	}
}
