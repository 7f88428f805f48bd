// SPDX-License-Identifier: MIT

package upstream

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// believed is the set of fields that the limiter or the upstream believes. They identify the client,
// name the cost, say where the request came from, or change the method. The upstream must get the
// values that the limiter has seen, whatever a client sends.
type believed struct {
	active func() *config.Config
	latest atomic.Pointer[believedOf]
}

// believedOf is the set of fields that a configuration believes.
type believedOf struct {
	config *config.Config
	fields map[string]bool // canonical names
	dashed map[string]bool // the same, with hyphens for underscores
}

func (f *believed) current() *believedOf {
	c := f.active()
	of := f.latest.Load()
	if of == nil || of.config != c {
		of = newBelievedOf(c)
		f.latest.Store(of)
	}
	return of
}

// has reports whether a field of this name, which is canonical and has hyphens, is believed.
func (f *believed) has(name string) bool { return isForwarded(name) || f.current().dashed[name] }

// dropTwins removes fields whose names are those of believed fields but for underscores in place of
// hyphens, or the reverse. Many servers, such as those with WSGI and CGI, read both as the same field, and the
// limiter does not. The same holds for the fields that say where a body ends, and for the ID of the request.
func (f *believed) dropTwins(h http.Header) {
	of := f.current()
	for field := range h {
		name := dashed(field)
		always := isForwarded(name) || name == "Content-Length" || name == "Transfer-Encoding" || name == logs.RequestIDField
		if name != field && always || of.dashed[name] && !of.fields[field] {
			delete(h, field)
		}
	}
}

// dashed returns the canonical name of a field, with hyphens for underscores.
func dashed(field string) string {
	if strings.IndexByte(field, '_') < 0 {
		return field // net/http has made it canonical
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(field, "_", "-"))
}

// newBelievedOf returns the fields by which a configuration finds actors, costs and classes, and those that can
// change the method.
func newBelievedOf(c *config.Config) *believedOf {
	of := &believedOf{c, plan.Headers(c.Limits, &c.Identity), map[string]bool{}}
	for _, name := range plan.MethodOverrides {
		of.fields[name] = true
	}
	for name := range of.fields {
		of.fields[name], of.dashed[dashed(name)] = true, true
	}
	return of
}

// mostConnectionFields is how many names the field Connection may have. Clients send two or three.
const mostConnectionFields = 32

// DropConnectionFields is a filter that removes the fields that Connection names. They apply to this
// connection alone, so the upstream does not get them, and the limiter must not count by them. The
// filter answers a request with too many names with 400.
//
// A connection of HTTP/1.0 ends with its answer, as RFC 9112 demands of proxies in section 9.3. net/http ignores the
// Transfer-Encoding of such a request, so it would read a body in chunks as the next request.
func DropConnectionFields(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.ProtoAtLeast(1, 1) {
			w.Header().Set("Connection", "close")
		}
		n := 0
		for _, list := range r.Header["Connection"] {
			for name := range strings.SplitSeq(list, ",") {
				if n++; n > mostConnectionFields {
					problem(w, http.StatusBadRequest, "The field Connection has too many names.")
					return
				}
				switch name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); name {
				case "Upgrade", "Te", "Trailer", "Connection": // net/http and ReverseProxy read these
				case logs.RequestIDField: // the gateway sets it for the upstream
				default:
					delete(r.Header, name)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
