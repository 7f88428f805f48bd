// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes is a net.Listener and its dialer, without a network.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// upstreamBy returns a transport of the gateway to a server that runs in the test's bubble.
func upstreamBy(t *testing.T, h http.HandlerFunc) *http.Transport {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(p) }()
	transport := newTransport()
	transport.DialContext = p.dial
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return transport
}

func requestTo(ctx context.Context, method, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, "http://upstream"+path, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// TestCancelSparesOthers cancels one of two requests at the moment at which they share a
// connection: net/http has put it into the pool, and still has the answer to the first request.
// The other request must succeed.
func TestCancelSparesOthers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ method, cancelled string }{
		{http.MethodGet, "/first"},
		{http.MethodPost, "/first"},
		{http.MethodGet, "/second"},
		{http.MethodPost, "/second"},
	} {
		t.Run(row.method+" cancels "+row.cancelled, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				transport := newCancelSafe(upstreamBy(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusNoContent)
				}))
				leaving, leave := context.WithCancel(t.Context())
				defer leave()
				ask := func(path string, trace *httptrace.ClientTrace) error {
					ctx := t.Context()
					if path == row.cancelled {
						ctx = leaving
					}
					answer, err := transport.RoundTrip(requestTo(httptrace.WithClientTrace(ctx, trace), row.method, path))
					if err != nil {
						return err
					}
					return answer.Body.Close()
				}
				reused, second := false, make(chan error, 1)
				err := ask("/first", &httptrace.ClientTrace{PutIdleConn: func(error) {
					go func() {
						second <- ask("/second", &httptrace.ClientTrace{
							GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused },
						})
					}()
					synctest.Wait() // until the second request has the connection
					leave()
					synctest.Wait() // until net/http has acted on the cancellation
				}})
				errs := map[string]error{"/first": err, "/second": <-second}
				delete(errs, row.cancelled)
				for path, err := range errs {
					if err != nil {
						t.Errorf("%s fails: %v", path, err)
					}
				}
				if !reused {
					t.Error("the requests did not share a connection")
				}
			})
		})
	}
}

// TestCancelReachesUpstream has a client disconnect at each stage of an answer. The upstream must
// notice each time.
func TestCancelReachesUpstream(t *testing.T) {
	t.Parallel()
	for stage, begin := range map[string]func(http.ResponseWriter){
		"before the answer":             func(http.ResponseWriter) {},
		"after an informational answer": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) },
		"within the answer's body": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
		},
		"within the body after a 103": func(w http.ResponseWriter) {
			w.WriteHeader(103)
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				noticed := make(chan struct{})
				transport := newCancelSafe(upstreamBy(t, func(w http.ResponseWriter, r *http.Request) {
					begin(w)
					<-r.Context().Done()
					close(noticed)
				}))
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					synctest.Wait()
					leave()
				}()
				answer, err := transport.RoundTrip(requestTo(ctx, http.MethodGet, "/"))
				if err == nil {
					_, err = io.ReadAll(answer.Body)
					_ = answer.Body.Close()
				}
				<-noticed
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}
