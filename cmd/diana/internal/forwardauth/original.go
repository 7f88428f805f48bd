// SPDX-License-Identifier: MIT

package forwardauth

import (
	"cmp"
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
	methods, uris := values(r.Header, methodFields), values(r.Header, uriFields)
	if behind != "" { // the gateway has kept the method and the host too
		methods = appendNew(methods, r.Method)
	}
	if len(methods) == 0 {
		methods = append(methods, r.Method)
	}
	t := target{hosts: values(r.Header, hostFields)}
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
	of := r.WithContext(r.Context()) // a copy, in which rules look for actors and costs
	if behind != "" {
		of.Header = httptext.SplitLines(r.Header)
	}
	of.Method, of.Host, of.Body, of.TLS = methods[0], t.hosts[0], http.NoBody, nil // the certificate is the gateway's
	of.URL = &url.URL{Path: t.paths[0], RawQuery: t.query()}
	actors := map[string]string{}
	if ip := plan.ClientIP(identity, &rule.Request{HTTP: r}); ip.IsValid() {
		actors["ip"] = ip.String()
	}
	if len(t.hosts) > 1 {
		actors["host"] = rule.Unclear
	}
	return diana.Request{
		Method: methods[0], OtherMethods: methods[1:], Path: t.paths[0], OtherPaths: t.paths[1:],
		Actors: actors, HTTP: of,
	}, nil
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

// values returns the different values of some fields, as many as it takes to see that there are too many.
// An empty value is none.
func values(h http.Header, fields []string) (list []string) {
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
