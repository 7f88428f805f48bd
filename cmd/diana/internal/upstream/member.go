// SPDX-License-Identifier: MIT

package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// An upstream is out of service after failuresInRow failures, for firstPause. Then one request tries it. If
// that fails, the next pause is twice as long, up to longestPause. If it succeeds, the upstream is back.
const (
	FailuresInRow = 3
	firstPause    = time.Second
	longestPause  = time.Minute
)

// member is an upstream of a pool.
type member struct {
	name      string
	to        *url.URL
	transport http.RoundTripper

	// The pool's mutex guards the rest.
	failures int           // in a row
	pause    time.Duration // how long the member is out of service at once; 0: it is in service
	until    time.Time     // when the next request may try it

	requests, failed, retries uint64 // for metrics
}

// request returns the request to this member.
func (m *member) request(r *http.Request) *http.Request {
	r = r.WithContext(r.Context()) // a copy, because an earlier attempt may still read the original
	u := *r.URL
	u.Scheme, u.Host = m.to.Scheme, m.to.Host
	r.URL = &u
	return r
}

// fail notes a failure, and reports whether it puts the member out of service. Requests that were in flight at
// that time can fail too, and do not prolong the pause. Only a probe does.
func (m *member) fail(probe bool, now time.Time) bool {
	m.failed++
	m.failures++
	switch {
	case m.pause == 0 && m.failures >= FailuresInRow:
		m.pause = firstPause
		m.until = now.Add(m.pause)
		return true
	case probe:
		m.pause = min(2*m.pause, longestPause)
		m.until = now.Add(m.pause)
	}
	return false
}

// succeed notes a success, and reports whether it puts the member back into service.
func (m *member) succeed() bool {
	back := m.pause > 0
	m.failures, m.pause = 0, 0
	return back
}

// heldBody is a request's body that a transport neither closes nor reads after release, so that another
// attempt can still send it.
type heldBody struct {
	io.ReadCloser

	mu       sync.Mutex // guards the rest; a transport may read while the pool releases
	began    bool       // a Read has begun
	released bool
}

var errReleased = errors.New("another attempt sends the request's body")

// holdBody returns the held body of a request, or nil if it has none.
func holdBody(r *http.Request) *heldBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	return &heldBody{ReadCloser: r.Body}
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.released {
		b.mu.Unlock()
		return 0, errReleased
	}
	b.began = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

// Close does nothing. ReverseProxy closes the body at the end of the request.
func (b *heldBody) Close() error { return nil }

// release ends the reading by the first attempt, and reports whether it has read nothing. A nil body has
// nothing to read.
func (b *heldBody) release() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = !b.began
	return b.released
}
