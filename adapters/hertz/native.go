// SPDX-License-Identifier: MIT

package dianahertz

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
)

// native is the rule.Native of a request. Its methods return copies, because hertz uses its memory again. After the
// handler Diana asks for the context alone.
type native struct {
	ctx          context.Context // has the actor of Options
	request      *app.RequestContext
	method, path string
}

func (n *native) Context() context.Context { return n.ctx }

// Field reads all names, because hertz can be told to leave them as the client wrote them.
func (n *native) Field(name string) (lines []string) {
	n.request.Request.Header.VisitAll(func(key, value []byte) {
		if len(key) == len(name) && strings.EqualFold(string(key), name) {
			lines = append(lines, string(value))
		}
	})
	return lines
}

func (n *native) Host() string  { return string(n.request.Request.Host()) }
func (n *native) Query() string { return string(n.request.Request.URI().QueryString()) }
func (n *native) Peer() string  { return n.request.RemoteAddr().String() }

// HTTP returns a copy of the request.
func (n *native) HTTP() *http.Request {
	r := &http.Request{
		Method: n.method, URL: &url.URL{Path: n.path, RawQuery: n.Query()}, Host: n.Host(),
		Header: http.Header{}, RemoteAddr: n.Peer(),
	}
	n.request.Request.Header.VisitAll(func(name, value []byte) { r.Header.Add(string(name), string(value)) })
	return r.WithContext(n.ctx)
}
