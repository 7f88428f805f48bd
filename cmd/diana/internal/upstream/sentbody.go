// SPDX-License-Identifier: MIT

package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errUpstreamLate is the cause of a request's end when a sentBody's time limit has passed.
var errUpstreamLate = errors.New("the upstream took no more of the request's body for too long")

// sentBody is the body of a request to the upstream. It ends the request when the upstream
// neither takes more of the body nor begins to answer for too long. The time of a Read does not
// count, because then the gateway waits for the client.
//
// http.Transport's ResponseHeaderTimeout begins when the whole body is sent. By itself, an upstream
// that stops reading would hold the request forever.
type sentBody struct {
	io.ReadCloser
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil: the upstream has begun to answer
}

// withSentBody returns the request with such a body. The caller calls stop when the request has
// ended.
func withSentBody(r *http.Request, limit time.Duration) (with *http.Request, stop func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	s := &sentBody{ReadCloser: r.Body, limit: limit}
	s.timer = time.AfterFunc(limit, func() { cancel(errUpstreamLate) })
	r = r.WithContext(context.WithValue(ctx, sentBodyKey{}, s))
	r.Body = s
	return r, func() {
		s.answered()
		cancel(nil)
	}
}

func (s *sentBody) Read(b []byte) (int, error) {
	s.set((*time.Timer).Stop)
	n, err := s.ReadCloser.Read(b)
	s.set(func(t *time.Timer) bool { return t.Reset(s.limit) })
	return n, err
}

func (s *sentBody) set(timer func(*time.Timer) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		timer(s.timer)
	}
}

// answered ends the time limit, because the upstream has begun to answer. A nil sentBody has none.
func (s *sentBody) answered() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

type sentBodyKey struct{}

// sentBodyOf returns that of the request with this context; nil if it has no body.
func sentBodyOf(ctx context.Context) *sentBody {
	s, _ := ctx.Value(sentBodyKey{}).(*sentBody)
	return s
}
