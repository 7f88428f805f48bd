// SPDX-License-Identifier: MIT

package respond

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/memstore"
)

// bufferSize is how many bytes of small writes are buffered before they are paced.
const bufferSize = 4 << 10

// sniffed is how many bytes of a response net/http reads to detect its content type.
const sniffed = 512

// Watch says what a response is watched for.
type Watch struct {
	// SetStatus is called once with the status of the response, as soon as it is known. It is not
	// called if the client has disconnected before; otherwise a client could avoid a charge by
	// disconnecting early. Nil: nobody needs the status.
	SetStatus func(status int)

	// FirstByte is called once when the body of the response begins, under the same terms. It may be nil.
	FirstByte func()

	// Paces are the bandwidths that the response keeps, all of them. Shared ones are counted in
	// Store, whose clock also times the others.
	Paces []Pace
	Store *memstore.Store

	Bill *Bill // nil: the response does not say what it costs

	Leave     *Leave // nil: the response ends when the client disconnects
	DropUsage bool   // of a stream, because the client has not asked for it
}

// Serve has next answer the request through a ResponseWriter that is watched. That ResponseWriter
// can do all that w can.
func (x Watch) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	a := &writer{ResponseWriter: w, setStatus: x.SetStatus, firstByte: x.FirstByte, ctx: r.Context()}
	if len(x.Paces) > 0 {
		a.paced = newPaced(a.ctx, w, x.Store, x.Paces)
		a.buffer = bufio.NewWriterSize(a.paced, bufferSize)
	}
	if x.Bill != nil {
		a.bill = &billing{Bill: x.Bill, none: r.Method == http.MethodHead, left: -1}
	}
	if x.DropUsage {
		a.usage = &usageFilter{}
	}
	returned := false
	defer func() {
		a.end(returned)
		a.leaving.end()
	}()
	if x.Leave != nil {
		a.leaving, r = x.Leave.follow(r)
	}
	next.ServeHTTP(a.abilities(), r)
	a.finish()
	returned = true
}

// writer is the ResponseWriter of a response that is watched.
type writer struct {
	http.ResponseWriter
	setStatus func(int)       // may be nil
	firstByte func()          // nil: it was called, or nobody needs it
	ctx       context.Context // the request's
	status    int             // 0 until it is known
	paced     *paced          // nil: the response has no bandwidth
	buffer    *bufio.Writer   // in front of paced
	bill      *billing        // nil: the response does not say what it costs
	leaving   *leaving        // nil: the response ends when the client disconnects
	usage     *usageFilter    // nil: the client gets all
	flushed   bool            // the client may wait for each piece
}

// abilities returns a as a type with the optional interfaces of w. Programs find out by the type
// whether they can take over the connection, or push in HTTP/2.
func (a *writer) abilities() http.ResponseWriter {
	if hijacks(a.ResponseWriter) {
		return hijacker{a}
	}
	if _, ok := a.ResponseWriter.(http.Pusher); ok {
		return pusher{a}
	}
	return a
}

// hijacks reports whether http.ResponseController can take over the connection of w. If it can, a
// writer must have Hijack, so that it learns of that.
func hijacks(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// Chunk returns how many bytes a handler best writes to w at once, at most 32 KiB. It returns 0 if it
// does not matter, because the response has no bandwidth.
func Chunk(w http.ResponseWriter) int {
	for {
		switch x := w.(type) {
		case interface{ chunk() int }:
			return x.chunk()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return 0
		}
	}
}

// Reads reports whether the body of the response is read, because it says what it has cost.
func Reads(w http.ResponseWriter) bool {
	for {
		switch x := w.(type) {
		case interface{ reads() bool }:
			return x.reads()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return false
		}
	}
}

type hijacker struct{ *writer }

type pusher struct{ *writer }

// Unwrap is for http.ResponseController.
func (a *writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *writer) reads() bool {
	return a.bill != nil && slices.ContainsFunc(a.bill.Sources, answer.Source.InBody)
}

func (a *writer) chunk() int {
	if a.paced == nil {
		return 0
	}
	return a.paced.chunk()
}

// WriteHeader sets the status, except for an informational one, because another status follows.
func (a *writer) WriteHeader(status int) {
	a.ResponseWriter.WriteHeader(status)
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.answered(status)
		if a.usage != nil {
			a.usage.begin(a.Header())
		}
		a.leaving.begin(status, a.Header().Get("Content-Length") == "")
		if a.bill != nil {
			a.bill.begin(a.Header(), status == http.StatusNoContent || status == http.StatusNotModified)
		}
	}
}

// answered notes the status and reports it to setStatus.
func (a *writer) answered(status int) {
	a.status = status
	if a.bill != nil && a.ctx.Err() == nil {
		a.bill.status = status
	}
	if a.setStatus != nil && a.ctx.Err() == nil {
		a.setStatus(status)
	}
}

// begin sets the status of a response whose handler has set none.
func (a *writer) begin() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK) // now, although the body may still be buffered
	}
}

func (a *writer) Write(b []byte) (n int, err error) {
	a.begin()
	a.bodyBegins(len(b))
	if a.bill == nil {
		return a.write(b)
	}
	before := a.bill.read(b)
	if before > 0 || len(b) == 0 {
		n, err = a.send(b[:before])
	}
	if before < len(b) && err == nil { // the client does not get the rest before it is charged
		if a.flushed && before > 0 {
			_ = a.flush()
		}
		a.bill.settle()
		var last int
		last, err = a.send(b[before:])
		n += last
	}
	a.bill.failed = a.bill.failed || err != nil
	return n, err
}

// send writes what the client gets. A client that has disconnected gets nothing.
func (a *writer) send(b []byte) (n int, err error) {
	if a.leaving.isGone() {
		return len(b), nil
	}
	if a.usage == nil {
		n, err = a.write(b)
	} else if out := a.usage.pass(b); len(out) == 0 && len(b) > 0 {
		n = len(b)
	} else if _, err = a.write(out); err == nil {
		n = len(b)
	}
	if err != nil && a.leaving != nil {
		if a.leaving.left(); a.leaving.isGone() {
			return len(b), nil
		}
	}
	return n, err
}

// bodyBegins calls firstByte before the first n bytes of the body.
func (a *writer) bodyBegins(n int) {
	if first := a.firstByte; first != nil && n > 0 {
		if a.firstByte = nil; a.ctx.Err() == nil {
			first()
		}
	}
}

func (a *writer) write(b []byte) (int, error) {
	if a.paced != nil {
		return a.buffer.Write(b)
	}
	return a.ResponseWriter.Write(b)
}

// ReadFrom lets the kernel send a file, unless the response is paced. As in net/http, the handler
// can still set the status if the first read fails.
func (a *writer) ReadFrom(from io.Reader) (n int64, err error) {
	writer := struct{ io.Writer }{a}
	if a.paced != nil {
		return io.CopyBuffer(writer, from, make([]byte, a.paced.chunk()))
	}
	if a.bill != nil {
		return io.Copy(writer, from)
	}
	if a.status == 0 || a.firstByte != nil {
		if n, err = io.Copy(writer, io.LimitReader(from, sniffed)); n < sniffed || err != nil {
			return n, err
		}
	}
	rest, err := io.Copy(a.ResponseWriter, from)
	return n + rest, err
}

// Flush sends what has been written.
func (a *writer) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *writer) FlushError() error {
	a.begin()
	if a.flushed = true; a.leaving.isGone() {
		return nil
	}
	return a.flush()
}

func (a *writer) flush() error {
	if a.paced != nil {
		if err := a.buffer.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// CloseNotify is for old handlers and for frameworks that require it. It returns nil if the
// ResponseWriter behind a has no such method.
func (a *writer) CloseNotify() <-chan bool {
	if c, ok := a.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return c.CloseNotify()
	}
	return nil
}

// Hijack hands over the connection, which is then neither paced nor watched. The status is 101
// then, because handlers that take over a connection change the protocol, and few of them call
// WriteHeader.
func (a hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.paced != nil {
		if err := a.buffer.Flush(); err != nil {
			return nil, nil, err
		}
	}
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil && a.status == 0 {
		a.answered(http.StatusSwitchingProtocols)
	}
	if err == nil && a.bill != nil {
		a.bill.failed = true // nobody reads what is sent
	}
	return conn, rw, err
}

// Push implements http.Pusher.
func (a pusher) Push(target string, o *http.PushOptions) error {
	return a.ResponseWriter.(http.Pusher).Push(target, o)
}

// finish ends the response after its handler has returned. If the handler has not written through
// a, the status stays unknown, because a framework can still answer through the ResponseWriter
// behind a.
func (a *writer) finish() {
	if a.usage != nil && !a.leaving.isGone() {
		if rest := a.usage.rest(); len(rest) > 0 {
			_, _ = a.write(rest)
		}
	}
	if a.paced != nil {
		a.paced.last = true
		_ = a.buffer.Flush() // a client that has disconnected needs no response
	}
}

// end ends the bill of the response, also after a panic. A client that has disconnected did not get all.
func (a *writer) end(returned bool) {
	if a.bill == nil {
		return
	}
	if a.leaving != nil {
		a.bill.failed = a.bill.failed || a.leaving.failed()
	} else {
		a.bill.failed = a.bill.failed || a.ctx.Err() != nil
	}
	a.bill.end(a.Header(), returned)
}
