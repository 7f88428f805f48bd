// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
)

// cancelSafe is a RoundTripper that works around two races in net/http. Without it, a client
// that disconnects can make the request of another client fail.
//
// The races are in transport.go of go1.26.8. If an answer has no body, readLoop first puts the
// connection into the pool of idle connections, and then passes the answer to roundTrip. In
// between, a second request can take the connection, and the connection serves two requests. If
// one of the two is cancelled, its roundTrip closes the connection. The other request then fails
// with "context canceled", although its client waits for the answer:
//
//	readLoop       connection to pool ───────────────────── answer to A
//	request A                                    cancelled       fails, if B is cancelled
//	request B                           takes it                 fails, if A is cancelled
//
// net/http does not retry either of them, because the upstream may have executed it. For the
// same reason the gateway can only retry idempotent methods. So cancelSafe prevents both races
// for every method, by what httptrace reports:
//
//   - A request is not cancelled while readLoop handles its answer, which is from the first byte
//     until RoundTrip returns. If its client disconnects in between, the request is cancelled
//     when RoundTrip returns. That is soon, because the answer's header is arriving;
//     ResponseHeaderTimeout bounds it.
//   - A request that takes a connection waits until RoundTrip of the request before it returns.
//
// One gap remains. httptrace does not report the first byte of an answer that follows an
// informational one, such as 100 or 103. The first rule does not hold for such an answer.
//
// base must not speak HTTP/2, where answerBegins would block all streams of a connection.
//
// cancelSafe may be removed when net/http passes the answer on before it puts the connection
// into the pool. Then TestCancelSparesOthers passes without it. The race was reported before,
// as golang/go#9496 and golang/go#41600.
type cancelSafe struct {
	base http.RoundTripper

	mu    sync.Mutex // guards users
	users map[net.Conn]*attempt
}

// attempt is a request to the upstream. Its context is not the client's, and can end later.
type attempt struct {
	client   context.Context
	cancel   context.CancelCauseFunc
	trace    httptrace.ClientTrace
	conn     net.Conn      // nil before it has one
	returned chan struct{} // closed when RoundTrip of the base has returned

	mu        sync.Mutex // guards the rest
	answering bool       // readLoop handles the answer
	cancelled bool
}

// newCancelSafe returns a RoundTripper that prevents the races of base. All requests to base
// must use the same one.
func newCancelSafe(base http.RoundTripper) *cancelSafe {
	return &cancelSafe{base: base, users: map[net.Conn]*attempt{}}
}

// RoundTrip implements http.RoundTripper.
func (t *cancelSafe) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &attempt{client: r.Context(), returned: make(chan struct{})}
	a.trace.GotConn = func(i httptrace.GotConnInfo) { t.use(a, i.Conn) }
	a.trace.GotFirstResponseByte = a.answerBegins
	a.trace.Got1xxResponse = a.answerIsInformational
	var ctx context.Context
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(a.client))
	stop := context.AfterFunc(a.client, a.clientDisconnects)

	answer, err := t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, &a.trace)))
	t.release(a)
	close(a.returned)
	a.answerEnds()
	if err != nil {
		stop()
		return nil, err
	}
	answer.Request = r
	if answer.Body == http.NoBody || answer.StatusCode == http.StatusSwitchingProtocols {
		stop() // net/http does not look at the context any more
	} else {
		answer.Body = &watchedBody{answer.Body, stop}
	}
	return answer, nil
}

// use notes that a has a connection, and waits until the request before it has its answer.
func (t *cancelSafe) use(a *attempt, c net.Conn) {
	t.release(a) // if net/http retries the request
	t.mu.Lock()
	before := t.users[c]
	t.users[c], a.conn = a, c
	t.mu.Unlock()
	if before != nil {
		<-before.returned
	}
}

// release notes that a does not use its connection, if it has one.
func (t *cancelSafe) release(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[a.conn] == a {
		delete(t.users, a.conn)
	}
}

// clientDisconnects cancels the request, unless readLoop handles its answer.
func (a *attempt) clientDisconnects() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.answering {
		a.cancelLocked()
	}
}

func (a *attempt) cancelLocked() {
	a.cancelled = true
	a.cancel(context.Cause(a.client))
}

// answerBegins is called by readLoop before it handles an answer. If the request is cancelled,
// roundTrip may not have noticed yet. So answerBegins waits until roundTrip has closed the
// connection, which keeps it out of the pool. roundTrip does not wait for readLoop.
func (a *attempt) answerBegins() {
	a.mu.Lock()
	cancelled := a.cancelled
	a.answering = !cancelled
	a.mu.Unlock()
	if cancelled {
		<-a.returned
	}
}

// answerIsInformational is called by readLoop after an informational answer. The next answer
// can take long.
func (a *attempt) answerIsInformational(int, textproto.MIMEHeader) error {
	a.answerEnds()
	return nil
}

// answerEnds cancels the request if its client disconnected while readLoop handled the answer.
func (a *attempt) answerEnds() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answering = false
	if a.client.Err() != nil {
		a.cancelLocked()
	}
}

// watchedBody is the body of an answer. Until Close, the end of the client's context makes Read
// fail.
type watchedBody struct {
	io.ReadCloser
	stop func() bool
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
