// SPDX-License-Identifier: MIT

package main

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// believed knows the fields of a request that the limiter or the upstream believes: what says who
// makes the request, what it costs, where it came from, or which method it has. A client must not
// be able to slip the upstream another value of one than the limiter has seen.
type believed struct {
	inForce func() *config.Config
	latest  atomic.Pointer[believedOf]
}

// believedOf is what a configuration believes.
type believedOf struct {
	config *config.Config
	fields map[string]bool // by their canonical names
	dashed map[string]bool // the same, with hyphens for underscores
}

func (f *believed) of() *believedOf {
	c := f.inForce()
	of := f.latest.Load()
	if of == nil || of.config != c {
		of = newBelievedOf(c)
		f.latest.Store(of)
	}
	return of
}

// has reports whether a field of this name, which is canonical and has hyphens, is believed.
func (f *believed) has(name string) bool { return saysWhence(name) || f.of().dashed[name] }

// dropTwins removes fields whose name differs from that of a believed one by a hyphen for an
// underscore, or the other way round. Many servers, such as those of WSGI and CGI, read both as the
// same, and the limiter does not.
func (f *believed) dropTwins(h http.Header) {
	of := f.of()
	for field := range h {
		name := dashed(field)
		if name != field && saysWhence(name) || of.dashed[name] && !of.fields[field] {
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

// newBelievedOf collects the fields by which a configuration finds actors and costs, and those that
// can change the method.
func newBelievedOf(c *config.Config) *believedOf {
	of := &believedOf{c, map[string]bool{}, map[string]bool{}}
	field := func(name string) {
		name = http.CanonicalHeaderKey(name)
		of.fields[name], of.dashed[dashed(name)] = true, true
	}
	actors := func(actors []rule.Actor) {
		for _, a := range actors {
			switch a.Kind {
			case "header":
				field(a.Name)
			case "cookie":
				field("Cookie")
			}
		}
	}
	for _, name := range plan.MethodOverrides {
		field(name)
	}
	actors(c.Identity.Account)
	actors(c.Identity.Device)
	for _, entry := range c.Limits {
		if entry.Bandwidth != nil {
			actors(entry.Bandwidth.Actor)
		}
		for i := range entry.Rules {
			actors(entry.Rules[i].Actor)
			if name := entry.Rules[i].Cost.Header; name != "" {
				field(name)
			}
		}
	}
	return of
}

// mostConnectionFields is how many names Connection may have. A client needs two or three.
const mostConnectionFields = 32

// dropConnectionFields is a filter that removes the fields that Connection names. They are for this
// connection alone, so the upstream does not get them: the limiter must not count by them either. It
// answers a request with too many names with 400.
func dropConnectionFields(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for _, list := range r.Header["Connection"] {
			for name := range strings.SplitSeq(list, ",") {
				if n++; n > mostConnectionFields {
					problem(w, http.StatusBadRequest, "The field Connection has too many names.")
					return
				}
				switch name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); name {
				case "Upgrade", "Te", "Trailer", "Connection": // net/http and ReverseProxy read these themselves
				case requestIDField: // the gateway sets it for the upstream
				default:
					delete(r.Header, name)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
