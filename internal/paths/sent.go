// SPDX-License-Identifier: MIT

package paths

import (
	"fmt"
	"net/url"
	"strings"
)

// Sent returns the path of a request's URL as the client sent it, in which only bytes that no URL may hold
// are encoded. For a path with such a byte, [url.URL.EscapedPath] decodes and encodes the whole: it returns
// /%C3%A9/b for /é%2Fb. Then routers that divide the path as it was sent would read another one.
func Sent(u *url.URL) string {
	path := u.EscapedPath()
	if u.RawPath == "" || path == u.RawPath {
		return path
	}
	if plain, err := url.PathUnescape(u.RawPath); err != nil || plain != u.Path {
		return path // a filter has changed Path, and RawPath means nothing
	}
	var b strings.Builder
	for i := range len(u.RawPath) {
		if c := u.RawPath[i]; validInPath(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// validInPath reports whether EscapedPath accepts a byte in a RawPath.
func validInPath(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~!$&'()*+,;=:@[]%/", c) >= 0
}
