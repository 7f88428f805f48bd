// SPDX-License-Identifier: MIT

// Package pooled has what the adapters for fiber and hertz share. Both frameworks use the memory of a request again.
package pooled

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/established"
	"github.com/diana-limiter/diana/internal/native"
	"github.com/diana-limiter/diana/internal/respond"
)

// Exchange is a request of a framework, and its response.
type Exchange interface {
	Method() []byte
	Host() []byte
	Target() (path, query []byte)
	VisitFields(Visitor)
	RemoteAddr() net.Addr

	// DelField and PutField change the header of the request.
	DelField(name string)
	PutField(name, value string)

	SetStatusCode(status int)
	SetField(name, value string)
	Write([]byte) (int, error)
}

// Visitor gets each line of a header. It is no function, because that would cost two allocations for each field.
type Visitor interface{ Visit(name, value []byte) }

// Request returns the request to evaluate. route is its path for the rules, unless it is empty. A kind that is not
// empty is that of an actor that the program knows. ctx has what an earlier middleware of Diana has proved.
func Request[E Exchange](ctx context.Context, of E, route, kind, value string) diana.Request {
	q := diana.Request{Method: http.MethodGet, Path: route, Proofs: established.In(ctx).Proofs, Native: exchange[E]{of}}
	if m := of.Method(); string(m) != q.Method { // the most frequent one is not copied
		q.Method = string(m)
	}
	if q.Path == "" {
		path, _ := of.Target()
		q.Path = string(path)
	}
	if kind != "" {
		q.Native = &known[E]{exchange[E]{of}, native.WithActor(context.Background(), kind, strings.Clone(value))}
	}
	return q
}

// exchange is the rule.Native of a request. Its methods return copies. An E is one pointer in both frameworks, so
// this one takes no memory. After the handler Diana asks for the context alone.
type exchange[E Exchange] struct{ of E }

// known is a request whose actor the program knows.
type known[E Exchange] struct {
	exchange[E]
	ctx context.Context
}

func (k *known[E]) Context() context.Context { return k.ctx }

func (x exchange[E]) Context() context.Context { return context.Background() }

// Field reads all names, because the frameworks can be told to leave them as the client wrote them.
func (x exchange[E]) Field(name string) []string {
	f := finders.Get().(*finder)
	f.name = name
	x.of.VisitFields(f)
	lines := f.lines
	f.lines = nil
	finders.Put(f)
	return lines
}

// finder finds the lines of a field.
type finder struct {
	name  string
	lines []string
}

var finders = sync.Pool{New: func() any { return &finder{} }}

// Visit keeps the value of the field that is asked for.
func (f *finder) Visit(name, value []byte) {
	if len(name) == len(f.name) && strings.EqualFold(string(name), f.name) {
		f.lines = append(f.lines, string(value))
	}
}

func (x exchange[E]) Host() string { return string(x.of.Host()) }

func (x exchange[E]) Peer() string { return x.of.RemoteAddr().String() }

// PeerAddr is Peer without a text.
func (x exchange[E]) PeerAddr() net.Addr { return x.of.RemoteAddr() }

func (x exchange[E]) Query() string {
	_, query := x.of.Target()
	return string(query)
}

// HTTP returns a copy of the request.
func (x exchange[E]) HTTP() *http.Request { return x.copied(x.Context()) }

// HTTP returns a copy of the request.
func (k *known[E]) HTTP() *http.Request { return k.copied(k.ctx) }

func (x exchange[E]) copied(ctx context.Context) *http.Request {
	path, query := x.of.Target()
	r := &http.Request{
		Method: string(x.of.Method()), URL: &url.URL{Path: string(path), RawQuery: string(query)}, Host: x.Host(),
		Header: http.Header{}, RemoteAddr: x.Peer(),
	}
	x.of.VisitFields(copied(r.Header))
	return r.WithContext(ctx)
}

// copied is a header that gets a copy of each line.
type copied http.Header

// Visit adds a line.
func (c copied) Visit(name, value []byte) { http.Header(c).Add(string(name), string(value)) }

// SetUpstream changes an allowed request as Decision.SetUpstream does. It returns the context for further handlers,
// and whether that has changed.
func SetUpstream(ctx context.Context, of Exchange, d *diana.Decision) (context.Context, bool) {
	ctx, fields := native.Upstream(ctx, d)
	if len(fields) == 0 {
		return ctx, false
	}
	old := &spellings{of: fields}
	of.VisitFields(old)
	for _, name := range old.found {
		of.DelField(name)
	}
	for name, lines := range fields {
		for _, line := range lines { // a configuration has one
			of.PutField(name, line)
		}
	}
	return ctx, true
}

// spellings finds the names of fields as the client wrote them.
type spellings struct {
	of    http.Header
	found []string
}

// Visit keeps the name of a field that is asked for.
func (s *spellings) Visit(name, _ []byte) {
	if _, ok := s.of[http.CanonicalHeaderKey(string(name))]; ok {
		s.found = append(s.found, string(name))
	}
}

// Reject answers a request for which Take has returned err. It reports false if err is nil or that of a context.
func Reject(of Exchange, err error) bool {
	return err != nil && respond.Reject(writer{of, http.Header{}}, nil, err, "")
}

// SetFields sets the fields of d in the response.
func SetFields(of Exchange, d *diana.Decision) {
	h := http.Header{}
	d.SetFields(h)
	setFields(of, h)
}

func setFields(of Exchange, h http.Header) {
	for name, values := range h {
		of.SetField(name, values[0]) // Diana sets one value for each
	}
}

// Refuse answers a request that d refuses.
func Refuse(of Exchange, d *diana.Decision) { d.Refuse(writer{of, http.Header{}}, 0) }

// writer is the response as an http.ResponseWriter.
type writer struct {
	of     Exchange
	header http.Header
}

func (w writer) Header() http.Header         { return w.header }
func (w writer) Write(b []byte) (int, error) { return w.of.Write(b) }

func (w writer) WriteHeader(status int) {
	w.of.SetStatusCode(status)
	setFields(w.of, w.header)
}
