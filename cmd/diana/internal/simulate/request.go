// SPDX-License-Identifier: MIT

package simulate

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/paths"
)

// requests makes requests of the entries of logs, as net/http makes them of what it reads. It
// reuses the memory of one request.
type requests struct {
	names  *weblog.Names
	http   http.Request
	url    url.URL
	values [][]string // of the header
	has    []bool     // whether the header has the value
}

func newRequests(names *weblog.Names) *requests {
	r := &requests{names: names, has: make([]bool, len(names.Headers))}
	r.http.Header, r.http.URL = http.Header{}, &r.url
	for range names.Headers {
		r.values = append(r.values, []string{""})
	}
	return r
}

// request returns the request request an entry, which is valid until the next call. ok is false if net/http
// would answer the request by itself.
func (r *requests) request(e *weblog.Entry) (request diana.Request, ok bool) {
	r.http.Method, r.http.Host, r.http.RemoteAddr = e.Method, e.Host, remote(e.Remote)
	path, ok := r.setURL(e)
	if !ok {
		return diana.Request{}, false
	}
	for i, value := range e.Headers {
		r.values[i][0] = value
		if has := value != ""; has != r.has[i] {
			if r.has[i] = has; has {
				r.http.Header[r.names.Headers[i]] = r.values[i]
			} else {
				delete(r.http.Header, r.names.Headers[i])
			}
		}
	}
	return diana.Request{Method: e.Method, Path: path, HTTP: &r.http}, true
}

// remote returns the address of a request. diana serve --log-actors hash writes 64 bits of a
// hash for an address. remote makes an IPv6 network of them, so that clients stay distinct.
func remote(text string) string {
	digits, ok := strings.CutPrefix(text, "sha256:")
	var ip [16]byte
	if !ok || len(digits) != 16 {
		return text
	}
	if _, err := hex.Decode(ip[:8], []byte(digits)); err != nil {
		return text
	}
	return netip.AddrFrom16(ip).String()
}

// setURL reads the target of an entry, as net/http does, and returns the path as it was sent.
func (r *requests) setURL(e *weblog.Entry) (path string, ok bool) {
	target := e.Target
	if plain(target) { // as nearly all are
		path, query, _ := strings.Cut(target, "?")
		r.url = url.URL{RawQuery: cmp.Or(query, e.Query)} // actors read nothing else of it
		return path, true
	}
	if target == "*" && e.Method == http.MethodOptions {
		return "", false
	}
	if e.Method == http.MethodConnect && !strings.HasPrefix(target, "/") {
		target = "http://" + target
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Opaque != "" {
		return "", false
	}
	if u.Host != "" {
		r.http.Host = u.Host
	}
	r.url = url.URL{RawQuery: cmp.Or(u.RawQuery, e.Query)}
	return paths.Sent(u), true
}

// plain reports whether a target is a path that stays the same when it is read and written as a URL, perhaps with a
// query. net/http's reading would be a large part of the work for a line.
func plain(target string) bool {
	if target == "" || target[0] != '/' {
		return false
	}
	for i := range len(target) {
		if !plainBytes[target[i]] {
			return false
		}
	}
	return true
}

var plainBytes = func() (plain [256]bool) {
	for c := range 256 {
		plain[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.ContainsRune("-_.~!$&'()*+,/:;=@[]?", rune(c))
	}
	return plain
}()
