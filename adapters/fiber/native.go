// SPDX-License-Identifier: MIT

package dianafiber

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// native is the rule.Native of a request. Its methods return copies, because fasthttp uses its memory again. After
// the handler Diana asks for the context alone.
type native struct {
	ctx          context.Context // has the actor of Options
	request      *fasthttp.RequestCtx
	method, path string
}

func (n *native) Context() context.Context { return n.ctx }

// Field reads all names, because fiber can be told to leave them as the client wrote them.
func (n *native) Field(name string) (lines []string) {
	for key, value := range n.request.Request.Header.All() {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			lines = append(lines, string(value))
		}
	}
	return lines
}

func (n *native) Host() string  { return string(n.request.Request.Host()) }
func (n *native) Query() string { return string(n.request.URI().QueryString()) }
func (n *native) Peer() string  { return n.request.RemoteAddr().String() }

// HTTP returns a copy of the request.
func (n *native) HTTP() *http.Request {
	r := &http.Request{
		Method: n.method, URL: &url.URL{Path: n.path, RawQuery: n.Query()}, Host: n.Host(),
		Header: http.Header{}, RemoteAddr: n.Peer(),
	}
	for name, value := range n.request.Request.Header.All() {
		r.Header.Add(string(name), string(value))
	}
	return r.WithContext(n.ctx)
}
