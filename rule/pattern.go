// SPDX-License-Identifier: MIT

package rule

import (
	"errors"
	"fmt"
	"strings"
)

// Pattern is the URL of an entry: a clean path, in which {name} stands for any one
// segment, and an optional method. It covers its path and all below it.
type Pattern struct {
	Method string // empty: any. GET covers HEAD too
	Path   string // clean, see CleanPath
}

func (p Pattern) String() string {
	if p.Method == "" {
		return p.Path
	}
	return p.Method + " " + p.Path
}

// ParsePattern reads "[METHOD ]PATH".
func ParsePattern(text string) (Pattern, error) {
	method, path, ok := strings.Cut(text, " ")
	if !ok {
		method, path = "", text
	}
	path = strings.TrimLeft(path, " ")
	switch {
	case text == "":
		return Pattern{}, errors.New(`url is empty, expected a path such as /sample`)
	case ok && (!token(method) || strings.ToUpper(method) != method):
		return Pattern{}, fmt.Errorf("url %q: %q is not a method, expected capitals, as in POST /login", text, method)
	case path == "" || path[0] != '/':
		return Pattern{}, fmt.Errorf("url %q: expected a path that begins with /", text)
	case strings.ContainsAny(path, "?#"):
		return Pattern{}, fmt.Errorf("url %q: expected a path without a query or fragment", text)
	}
	p := Pattern{Method: method, Path: CleanPath(path)}
	for segment := range strings.SplitSeq(p.Path, "/") {
		if strings.ContainsAny(segment, "{}") && !wild(segment) {
			return Pattern{}, fmt.Errorf("url %q: segment %q, expected {name} to be the whole segment", text, segment)
		}
	}
	return p, nil
}

func wild(segment string) bool {
	n := len(segment)
	return n > 2 && segment[0] == '{' && segment[n-1] == '}' && !strings.ContainsAny(segment[1:n-1], "{}")
}

// Same returns a text that is equal for two patterns that cover the same requests.
func (p Pattern) Same() string {
	segments := strings.Split(p.Path, "/")
	for i, s := range segments {
		if wild(s) {
			segments[i] = "{}"
		}
	}
	return p.Method + " " + strings.Join(segments, "/")
}

// covers reports whether a request with that method is one of the pattern. Letter case means
// nothing, as there are servers that ignore it.
func (p Pattern) covers(method string) bool {
	return p.Method == "" || p.Method == method || strings.EqualFold(p.Method, method) ||
		p.Method == "GET" && strings.EqualFold(method, "HEAD")
}
