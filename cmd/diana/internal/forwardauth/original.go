// SPDX-License-Identifier: MIT

package forwardauth

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// A gateway names the original request in some of these fields. It passes on the others as the client
// sent them, so a client can name another request there. Where they disagree, all values count.
var (
	methodFields = []string{"X-Forwarded-Method", "X-Original-Method"}
	uriFields    = []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"}
	hostFields   = []string{"X-Forwarded-Host"}
)

// mostValues is how many different methods, paths or hosts a question may have. Honest ones have one.
const mostValues = 8

var errValues = &rule.PathError{Reason: "the fields that name it have too many values"}

// original returns the request that a gateway asks about. behind is the path behind that of the Handler.
func original(r *http.Request, behind string, identity *rule.Identity) (diana.Request, *rule.PathError) {
	q := &question{r: r, joined: behind != ""}
	methods, uris := values(q.room[0:0:1], r.Header, methodFields), values(q.room[1:1:2], r.Header, uriFields)
	if behind != "" { // the gateway has kept the method and the host too
		methods = appendNew(methods, r.Method)
	}
	if len(methods) == 0 {
		methods = append(methods, r.Method)
	}
	t := target{q.room[2:2:3], q.room[3:3:4], values(q.room[4:4:5], r.Header, hostFields)}
	for _, uri := range uris {
		t.add(uri)
	}
	if behind != "" || len(uris) == 0 {
		t.add(cmp.Or(behind, "/") + "?" + r.URL.RawQuery)
	}
	if max(len(methods), len(t.paths), len(t.hosts)) > mostValues {
		return diana.Request{}, errValues
	}
	if behind != "" || len(t.hosts) == 0 {
		t.hosts = appendNew(t.hosts, r.Host)
	}
	q.method, q.host, q.path, q.query = methods[0], t.hosts[0], t.paths[0], t.query()
	actors := map[string]string{}
	if ip := plan.ClientIP(identity, &rule.Request{HTTP: r}); ip.IsValid() {
		actors["ip"] = ip.String()
	}
	if len(t.hosts) > 1 {
		actors["host"] = rule.Unclear
	}
	return diana.Request{
		Method: methods[0], OtherMethods: methods[1:], Path: t.paths[0], OtherPaths: t.paths[1:],
		Actors: actors, Native: q,
	}, nil
}

// question is the rule.Native of an original request.
type question struct {
	r      *http.Request // of the gateway
	joined bool          // the gateway joins the lines of a field

	method, host, path, query string

	room [5]string // memory for the lists of original, which mostly have one member
}

// Context is that of the gateway's request.
func (q *question) Context() context.Context { return q.r.Context() }

// Field returns the lines of a field.
func (q *question) Field(name string) (lines []string) {
	if lines = q.r.Header[name]; !q.joined {
		return lines
	}
	var split []string
	for _, line := range lines {
		split = httptext.AppendLines(split, name, line)
	}
	return split
}

func (q *question) Host() string  { return q.host }
func (q *question) Query() string { return q.query }
func (q *question) Peer() string  { return q.r.RemoteAddr }

// HTTP returns a copy of the request.
func (q *question) HTTP() *http.Request {
	r := q.r.WithContext(q.r.Context())
	if q.joined {
		r.Header = httptext.SplitLines(r.Header)
	}
	r.Method, r.Host, r.Body, r.TLS = q.method, q.host, http.NoBody, nil // the certificate is the gateway's
	r.URL = &url.URL{Path: q.path, RawQuery: q.query}
	return r
}

// target is what the fields of a question say about the target of the original request.
type target struct{ paths, queries, hosts []string }

// add adds a URI, with or without a scheme and a host.
func (t *target) add(uri string) {
	if scheme, rest, ok := strings.Cut(uri, "://"); ok && isScheme(scheme) {
		end := strings.IndexAny(rest+"/", "/?#")
		t.hosts = appendNew(t.hosts, rest[:end])
		if uri = rest[end:]; uri == "" || uri[0] != '/' {
			uri = "/" + uri
		}
	}
	path, short, query := httptext.Target(uri)
	t.addPath(path, query)
	t.addPath(short, query)
}

// isScheme reports whether s is a scheme of RFC 3986. Other text before "://" is part of a path, which the
// limiter refuses because it does not begin with a slash.
func isScheme(s string) bool {
	for i, c := range []byte(s) {
		switch letter := 'a' <= c|0x20 && c|0x20 <= 'z'; {
		case letter:
		case i == 0, c != '+' && c != '-' && c != '.' && (c < '0' || '9' < c):
			return false
		}
	}
	return s != ""
}

func (t *target) addPath(path, query string) {
	t.paths, t.queries = appendNew(t.paths, path), appendNew(t.queries, query)
}

// query returns a query in which no parameter has a value on which the queries disagree. Rules take
// no actor from a query with a semicolon.
func (t *target) query() string { return strings.Join(t.queries, ";") }

// values appends the different values of some fields to an empty list, as many as it takes to see that there are too
// many. An empty value is none.
func values(list []string, h http.Header, fields []string) []string {
	for _, field := range fields {
		for _, value := range h[field] {
			if value == "" {
				continue
			}
			if list = appendNew(list, value); len(list) > mostValues {
				return list
			}
		}
	}
	return list
}

func appendNew(list []string, value string) []string {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}
