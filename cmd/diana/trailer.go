// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"net/http"
	"net/http/httputil"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// passTrailer passes on a request's trailers, but for those that dropTrailers removes: what is
// announced now, and what arrives when the body ends.
func passTrailer(pr *httputil.ProxyRequest, inForce func() *config.Config) {
	dropTrailers(pr.In.Trailer, inForce())
	pr.Out.Trailer = pr.In.Trailer
	if pr.Out.Body != nil {
		pr.Out.Body = &trailed{pr.Out.Body, pr.In.Trailer, inForce}
	}
}

// trailed is a request's body whose trailers lose, when they have arrived, the fields that
// dropTrailers removes.
type trailed struct {
	io.ReadCloser
	trailer http.Header // of the request; net/http fills it when the body ends
	inForce func() *config.Config
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		dropTrailers(t.trailer, t.inForce())
	}
	return n, err
}

// dropTrailers removes from a request's trailers the fields that say who makes the request, what it
// costs or where it came from. The limiter and forward see the header alone, and some servers
// add the trailers to it. It also removes what RFC 9110 allows in no trailer (section 6.5.1), such
// as fields that hold for one connection. Many servers read an underscore as a hyphen, so names
// are compared that way. The cost grows with the number of rules.
func dropTrailers(trailer http.Header, c *config.Config) {
	for field := range trailer {
		name := http.CanonicalHeaderKey(strings.ReplaceAll(field, "_", "-"))
		if !httpguts.ValidTrailerHeader(name) || name == "Upgrade" || name == requestIDField || saysWhence(name) || identifies(name, c) {
			delete(trailer, field)
		}
	}
}

// identifies reports whether the configuration takes an actor or a cost from this field of a
// request. The name is canonical.
func identifies(name string, c *config.Config) bool {
	if isOne(name, c.Identity.Account) || isOne(name, c.Identity.Device) {
		return true
	}
	for _, entry := range c.Limits {
		if entry.Bandwidth != nil && isOne(name, entry.Bandwidth.Actor) {
			return true
		}
		for i := range entry.Rules {
			if r := &entry.Rules[i]; isOne(name, r.Actor) || same(name, r.Cost.Header) {
				return true
			}
		}
	}
	return false
}

// isOne reports whether one of the actors is found in this field.
func isOne(name string, actors []rule.Actor) bool {
	for _, a := range actors {
		if a.Kind == "header" && same(name, a.Name) || a.Kind == "cookie" && name == "Cookie" {
			return true
		}
	}
	return false
}

// same reports whether a field of the configuration has this canonical name.
func same(name, configured string) bool {
	return strings.EqualFold(name, strings.ReplaceAll(configured, "_", "-"))
}
