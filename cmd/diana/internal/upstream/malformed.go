// SPDX-License-Identifier: MIT

package upstream

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// malformed returns what is wrong with a request that http.Server accepts and http.Transport sends to no
// upstream, or "". Otherwise the Transport's error would look like one of the upstream. keepHost says that
// the upstream gets the Host of the client.
//
// http.Server itself rejects malformed names and values in headers, and control characters in the URL.
func malformed(r *http.Request, keepHost bool) string {
	if !httpguts.ValidHeaderFieldName(r.Method) { // HTTP has the same characters for both
		return "The request's method is malformed."
	}
	if strings.Contains(r.URL.RawQuery, " ") { // only HTTP/2 can carry it
		return "The request's query has a space."
	}
	for name := range r.Trailer {
		if !httpguts.ValidHeaderFieldName(name) {
			return "The request announces a trailer with a malformed name."
		}
	}
	if strings.ContainsFunc(r.Header.Get("Upgrade"), func(c rune) bool { return c < ' ' || c > '~' }) {
		return "The request's Upgrade is malformed."
	}
	if keepHost {
		if host, err := httpguts.PunycodeHostPort(r.Host); err != nil || !httpguts.ValidHostHeader(host) {
			return "The request's Host is malformed."
		}
	}
	return ""
}

// unsent returns the answer to a request that http.Transport has not sent because the upstream's connection
// does not allow it, or 0. The text of the error alone tells.
func unsent(err error) (status int, detail string) {
	switch text := err.Error(); {
	case strings.Contains(text, "request header list larger than peer's advertised limit"):
		return http.StatusRequestHeaderFieldsTooLarge, "The request's header is larger than the upstream server accepts."
	case strings.Contains(text, "http2: invalid Upgrade request header"):
		return http.StatusNotImplemented, "The upstream server speaks HTTP/2, which has no Upgrade."
	}
	return 0, ""
}

// isUnsent reports whether unsent has an answer for err, which may be nil.
func isUnsent(err error) bool {
	if err == nil {
		return false
	}
	status, _ := unsent(err)
	return status != 0
}
