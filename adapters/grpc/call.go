// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/native"
)

// call is the rule.Native of a call: the HTTP request that it is.
type call struct {
	ctx    context.Context
	method string // full, with the query that a server behind a handler of unknown services may read in it
}

// request returns a call as the HTTP request that it is.
func (o Options) request(ctx context.Context, method string) diana.Request {
	if o.Actor != nil {
		kind, value := o.Actor(ctx, method)
		ctx = native.WithActor(ctx, kind, value)
	}
	path, _, _ := strings.Cut(method, "?")
	return diana.Request{Method: http.MethodPost, Path: path, Native: &call{ctx, method}}
}

// Context has the actors of diana.WithActor.
func (c *call) Context() context.Context { return c.ctx }

// Field returns the lines of a field of the metadata.
func (c *call) Field(name string) []string {
	if lines := metadata.ValueFromIncomingContext(c.ctx, strings.ToLower(name)); len(lines) > 0 {
		return lines
	}
	return nil
}

// Host returns the authority.
func (c *call) Host() string {
	if lines := metadata.ValueFromIncomingContext(c.ctx, ":authority"); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// Query returns what follows a question mark in the method.
func (c *call) Query() string {
	_, query, _ := strings.Cut(c.method, "?")
	return query
}

// Peer returns the address of the client.
func (c *call) Peer() string {
	if a := c.PeerAddr(); a != nil {
		return a.String()
	}
	return ""
}

// PeerAddr is Peer without a text.
func (c *call) PeerAddr() net.Addr {
	if p, ok := peer.FromContext(c.ctx); ok {
		return p.Addr
	}
	return nil
}

// HTTP returns a copy of the call.
func (c *call) HTTP() *http.Request {
	path, query, _ := strings.Cut(c.method, "?")
	fields, _ := metadata.FromIncomingContext(c.ctx) // a copy, which becomes the header
	r := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header(fields),
		Host: c.Host(), RemoteAddr: c.Peer(), Body: http.NoBody,
	}).WithContext(c.ctx)
	for name, values := range fields {
		switch key := http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(name, ":"):
			delete(fields, name)
		case key != name: // the loop can meet the new name again
			delete(fields, name)
			fields[key] = values
		}
	}
	if p, ok := peer.FromContext(c.ctx); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &t.State
		}
	}
	return r
}

// upstream returns the context of an allowed call for its handler, see [diana.Decision.SetUpstream]. It is nil if
// the handler gets that of the call.
func upstream(ctx context.Context, d *diana.Decision) context.Context {
	ctx, fields := native.Upstream(ctx, d)
	if len(fields) == 0 {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	for name, lines := range fields {
		if md.Delete(name); lines != nil {
			md.Set(name, lines...)
		}
	}
	return metadata.NewIncomingContext(ctx, md)
}
