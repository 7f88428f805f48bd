// SPDX-License-Identifier: MIT

package diana

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// gathered is how many bytes of small writes are put together before they are paced.
const gathered = 4 << 10

// sniffed is how many bytes a server looks at to know the type of an answer.
const sniffed = 512

// answer is the ResponseWriter of a request whose status decides what it is charged, or
// whose body has a bandwidth. It has the abilities of the one that it stands for.
type answer struct {
	http.ResponseWriter
	decision Decision
	ctx      context.Context // the request's
	status   int             // 0 until there is one
	paced    *paced          // nil: as fast as it goes
	gathered *bufio.Writer   // in front of paced
}

func (d *Decision) answer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{ResponseWriter: w, decision: *d, ctx: r.Context()}
	if d.paces(r) {
		a.paced = d.j.paced(w, r)
		a.gathered = bufio.NewWriterSize(a.paced, gathered)
	}
	return a
}

// paces reports whether the answer has a bandwidth. With a clock that a program sets none
// has: no timer knows when that gets anywhere.
func (d *Decision) paces(r *http.Request) bool {
	return len(d.j.match.Bandwidths) > 0 && r.Method != http.MethodHead && d.j.limiter.options.Now == nil
}

// abilities returns a as what can do what w can: who asks whether a connection can be taken
// over, or HTTP/2 can push, finds out by the type.
func (a *answer) abilities() http.ResponseWriter {
	if hijacks(a.ResponseWriter) {
		return hijacker{a}
	}
	if _, ok := a.ResponseWriter.(http.Pusher); ok {
		return pusher{a}
	}
	return a
}

// hijacks reports whether http.ResponseController could take the connection over, which must
// not get past a.
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

type hijacker struct{ *answer }

type pusher struct{ *answer }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader notes the status, unless it is one that another will follow.
func (a *answer) WriteHeader(status int) {
	a.ResponseWriter.WriteHeader(status)
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.answered(status)
	}
}

// answered tells the status. That of an answer which nobody waits for any more is not
// told: who leaves before it is known gains nothing by that.
func (a *answer) answered(status int) {
	a.status = status
	if a.ctx.Err() == nil {
		a.decision.SetStatus(status)
	}
}

// begin sets the status that an answer has whose handler has set none.
func (a *answer) begin() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK) // in time, also if the body is still being gathered
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin()
	if a.paced != nil {
		return a.gathered.Write(b)
	}
	return a.ResponseWriter.Write(b)
}

// ReadFrom lets a file be sent without being copied through this program, where that need
// not be paced. As in net/http, what cannot be read leaves the status to the handler.
func (a *answer) ReadFrom(from io.Reader) (n int64, err error) {
	writer := struct{ io.Writer }{a}
	if a.paced != nil {
		return io.Copy(writer, from)
	}
	if a.status == 0 {
		if n, err = io.Copy(writer, io.LimitReader(from, sniffed)); n < sniffed || err != nil {
			return n, err
		}
	}
	rest, err := io.Copy(a.ResponseWriter, from)
	return n + rest, err
}

// Flush sends what has been written.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *answer) FlushError() error {
	a.begin()
	if a.paced != nil {
		if err := a.gathered.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// CloseNotify is for handlers that are older than the contexts of requests, and frameworks
// that count on it. Without one behind it the channel stays silent.
func (a *answer) CloseNotify() <-chan bool {
	if c, ok := a.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return c.CloseNotify()
	}
	return nil
}

// Hijack hands the connection over, which is then neither paced nor watched. What takes
// connections over changes the protocol, and few say so by WriteHeader.
func (a hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.paced != nil {
		if err := a.gathered.Flush(); err != nil {
			return nil, nil, err
		}
	}
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil && a.status == 0 {
		a.answered(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Push implements http.Pusher.
func (a pusher) Push(target string, o *http.PushOptions) error {
	return a.ResponseWriter.(http.Pusher).Push(target, o)
}

// finish ends the answer, when its handler has returned. If the handler has not written through a,
// the status is not known, and the request stays charged: a framework may still answer through
// the ResponseWriter that a stands for. If nobody does, net/http answers 200.
func (a *answer) finish() {
	if a.paced != nil {
		a.paced.last = true
		_ = a.gathered.Flush() // a client that is gone needs no more
	}
}
