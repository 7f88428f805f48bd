// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"net/http"
	"net/url"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/native"
)

// call is the rule.Native of a call: the HTTP request that it is.
type call struct {
	ctx               context.Context
	method, procedure string
	peer              connect.Peer
	header            http.Header
}

// request returns a call as the HTTP request that it is, with the procedure as its path.
func (o Options) request(ctx context.Context, method string, spec connect.Spec, peer connect.Peer, header http.Header) diana.Request {
	if o.Actor != nil {
		kind, value := o.Actor(ctx, spec.Procedure)
		ctx = native.WithActor(ctx, kind, value)
	}
	return diana.Request{Method: method, Path: spec.Procedure, Native: &call{ctx, method, spec.Procedure, peer, header}}
}

// replace replaces fields of a header. Those without lines it removes.
func replace(h, fields http.Header) {
	for name, lines := range fields {
		if delete(h, name); lines != nil {
			h[name] = lines
		}
	}
}

// Context has the actors of diana.WithActor.
func (c *call) Context() context.Context { return c.ctx }

// Field returns the lines of a header field.
func (c *call) Field(name string) []string { return c.header[name] }

// Host returns the host that connect has put into the header.
func (c *call) Host() string { return c.header.Get("Host") }

// Query returns the query of a call that comes as GET.
func (c *call) Query() string { return c.peer.Query.Encode() }

// Peer returns the address of the client.
func (c *call) Peer() string { return c.peer.Addr }

// HTTP returns the call as a request. They share the header.
func (c *call) HTTP() *http.Request {
	return (&http.Request{
		Method: c.method, URL: &url.URL{Path: c.procedure, RawQuery: c.Query()}, Header: c.header,
		Host: c.Host(), RemoteAddr: c.Peer(), Body: http.NoBody,
	}).WithContext(c.ctx)
}
