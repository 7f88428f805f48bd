// SPDX-License-Identifier: MIT

package rule

import (
	"errors"
	"fmt"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// Pattern is the URL of an entry: a clean path and an optional method. The segment {name} in the
// path matches any one segment. A pattern matches its path and all paths below it.
type Pattern struct {
	Method string // empty means any; GET includes HEAD
	Path   string // percent-decoded once, without empty segments, dot segments and a trailing slash
}

func (p Pattern) String() string {
	if p.Method == "" {
		return p.Path
	}
	return p.Method + " " + p.Path
}

// UnmarshalText reads "[METHOD ]PATH". The error says what was expected.
func (p *Pattern) UnmarshalText(data []byte) error {
	text := string(data)
	method, path, ok := strings.Cut(text, " ")
	if ok = ok && text[0] != '/'; !ok {
		method, path = "", text
	}
	path = strings.TrimLeft(path, " ")
	switch {
	case text == "":
		return errors.New(`url is empty, expected a path such as /sample`)
	case ok && !isMethod(method):
		return fmt.Errorf("url %q: %q is not a method, expected capitals, as in POST /login; a url without a method covers all", text, method)
	case path == "" || path[0] != '/':
		return fmt.Errorf("url %q: expected a path that begins with /", text)
	case strings.ContainsAny(path, "?#"):
		return fmt.Errorf("url %q: expected a path without a query or fragment", text)
	case strings.IndexByte(path, ' ') >= 0:
		return fmt.Errorf("url %q: expected a path without spaces, or %%20 for each", text)
	}
	clean := httptext.CleanPath(path)
	for segment := range strings.SplitSeq(clean, "/") {
		if strings.ContainsAny(segment, "{}") && !httptext.IsWild(segment) {
			return fmt.Errorf("url %q: segment %q, expected {name} to be the whole segment", text, segment)
		}
	}
	*p = Pattern{Method: method, Path: clean}
	return nil
}

// isMethod reports whether s is a method as clients send it, such as M-SEARCH. RFC 9110 allows more characters. No method
// has them, but lists such as GET|POST do.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '_') {
			return false
		}
	}
	return s != ""
}

// Same returns a text that is equal for two patterns that match the same requests.
func (p Pattern) Same() string {
	if strings.IndexByte(p.Path, '{') < 0 {
		return p.Method + " " + p.Path
	}
	segments := strings.Split(p.Path, "/")
	for i, s := range segments {
		if httptext.IsWild(s) {
			segments[i] = "{}"
		}
	}
	return p.Method + " " + strings.Join(segments, "/")
}
