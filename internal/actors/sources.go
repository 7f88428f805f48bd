// SPDX-License-Identifier: MIT

// Package actors finds the actor of a request in a header, a cookie, the query or the host, and names the
// kind that Handler finds in the body. Each
// kind has one canonical form for all spellings that servers take for the same actor.
package actors

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// Upstreams read the same request in several ways: they take the first value or the last, and decode
// it or not. If Diana counts a client by one reading and an upstream serves it by another, the client
// has as many counters as it likes. So each value has one canonical form here, and a value on which
// upstreams disagree is rule.Unclear.
//
// A client can send 64 KiB of headers, and every rule may read them. With these bounds a rule reads
// for less than 30 µs. Servers behind a gateway have similar bounds.
const (
	MostRead  = 8 << 10 // bytes of all cookies, and of the query
	MostPairs = 256     // cookies, and parameters of the query
	mostLines = 32      // lines of one field
	MostValue = 4 << 10 // bytes of a value
)

// Kinds returns the kinds of actors that this package finds.
func Kinds() []rule.ActorKind {
	return []rule.ActorKind{
		{Kind: "header", Named: true, Find: headerValue, Ask: askHeader, Canonical: canonicalField},
		{Kind: "cookie", Named: true, Find: cookieValue, Ask: askCookie, Canonical: canonicalPair},
		{Kind: "query", Named: true, Find: queryValue, Ask: askQuery, Canonical: canonicalPair},
		{Kind: "body", Named: true}, // read by Handler, which names the value in Request.Actors
		{Kind: "host", Find: hostValue, Ask: askHost, Canonical: canonicalHost},
		certKind(),
	}
}

// headerValue returns the value of a field, whose name is in canonical form. It is rule.Unclear if the
// lines of the field differ.
func headerValue(r *http.Request, name string) string {
	if name == "Host" { // net/http moves it out of the header
		return hostValue(r, name)
	}
	return fieldOf(r.Header[name])
}

func askHeader(r rule.Native, name string) string {
	if name == "Host" {
		return askHost(r, name)
	}
	return fieldOf(r.Field(name))
}

func fieldOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	first := lines[0]
	if len(lines) > mostLines || len(first) > MostValue {
		return rule.Unclear
	}
	for _, line := range lines[1:] {
		if line != first {
			return rule.Unclear
		}
	}
	return httptext.Trim(first)
}

func canonicalField(value, name string) string {
	if name == "Host" {
		return Host(value)
	}
	return httptext.Trim(value)
}

// cookieValue returns the value of a cookie. It is rule.Unclear if the request has the cookie several
// times with different values, if net/http cannot read the value, or if some servers read it as JSON.
func cookieValue(r *http.Request, name string) string { return cookieOf(r.Header["Cookie"], name) }

func askCookie(r rule.Native, name string) string { return cookieOf(r.Field("Cookie"), name) }

func cookieOf(lines []string, name string) string {
	p := pairs{name: name}
	read := 0
	for _, line := range lines {
		if read += len(line) + 1; read > MostRead || p.unclear {
			return rule.Unclear
		}
		p.search(line, ";")
	}
	if p.unclear {
		return rule.Unclear
	}
	value := p.value
	if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	if strings.IndexByte(value, '"') >= 0 || strings.IndexByte(value, '\\') >= 0 {
		return rule.Unclear
	}
	for i := range len(value) {
		if value[i]-' ' > '~'-' ' { // a control byte or not ASCII
			return rule.Unclear
		}
	}
	if value = decoded(value); strings.HasPrefix(value, "j:") {
		return rule.Unclear // cookie-parser reads JSON after it, which has many spellings
	}
	return value
}

// queryValue returns the value of a parameter of the query. It is rule.Unclear if the query has the
// parameter several times with different values. It is also rule.Unclear in a query with a raw ";" or
// "#". For some servers these bytes end a parameter. For others they belong to it, or are an error.
func queryValue(r *http.Request, name string) string { return parameterOf(r.URL.RawQuery, name) }

func askQuery(r rule.Native, name string) string { return parameterOf(r.Query(), name) }

func parameterOf(query, name string) string {
	if query == "" {
		return ""
	}
	if len(query) > MostRead {
		return rule.Unclear
	}
	p := pairs{name: name}
	if strings.IndexByte(query, ';') < 0 && strings.IndexByte(query, '#') < 0 {
		p.search(query, "&")
	} else if p.search(query, "&;#"); p.found {
		return rule.Unclear
	}
	if p.unclear {
		return rule.Unclear
	}
	return decoded(p.value)
}

// decoded percent-decodes the value of a cookie or parameter once, and replaces each plus, encoded or
// not, by a space. The result is rule.Unclear if the encoding is malformed.
func decoded(value string) string {
	if strings.IndexByte(value, '%') >= 0 {
		var err error
		if value, err = url.QueryUnescape(value); err != nil {
			return rule.Unclear
		}
	}
	return strings.ReplaceAll(value, "+", " ")
}

// canonicalPair returns the canonical form of a value that a configuration names. It is the form of
// the same text in a cookie or parameter. A percent sign that encodes nothing stays.
func canonicalPair(value, _ string) string {
	if canonical := decoded(value); canonical != rule.Unclear {
		return canonical
	}
	return strings.ReplaceAll(value, "+", " ")
}
