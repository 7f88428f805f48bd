// SPDX-License-Identifier: MIT

// Package client keeps the HTTP calls of a program within limits. The program's own limits are
// rules, in the same YAML that limits the clients of a server. The servers' limits are those
// that servers report in their responses.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/actors"
)

// A Transport is an http.RoundTripper that delays or refuses calls, so that they stay within
// limits. The zero value keeps the limits that servers report. A Transport is safe for concurrent
// use, starts no goroutine, and must not be copied after first use.
//
// A server reports its limits by Retry-After in responses with status 429 or 503, and the number of
// calls left by RateLimit (draft-ietf-httpapi-ratelimit-headers-11), RateLimit-Remaining or
// X-RateLimit-Remaining. The Transport keeps the limits of each host by itself. A server that
// reports correctly refuses no call after its first response, as long as no other client consumes
// the same limits. When no call is left, calls wait, in order, until the server said that more
// become available. Then one call is sent, and its response says how many may follow.
//
// The Transport does not know in advance which partition of its limits (the parameter pk) a server
// counts a call in. So a program that calls as several accounts needs a Transport for
// each account.
type Transport struct {
	// Base makes the calls. Nil means http.DefaultTransport.
	Base http.RoundTripper

	// Limiter has the program's own rules. It evaluates a call by its method, the path of its
	// URL, its header, and the host of its URL, which is the actor "host". Nil means no rules.
	Limiter *diana.Limiter

	// MaxWait is the longest time that a call waits until its server allows it. A call that is
	// known to wait longer, or longer than its context lasts, fails at once. 0 means one
	// minute, and a negative value that no call waits. It does not limit the wait for the
	// program's own rules, which say so themselves.
	MaxWait time.Duration

	mu    sync.Mutex // guards the rest
	hosts map[string]*host
	uses  uint64
}

// defaultMaxWait is the MaxWait of the zero value.
const defaultMaxWait = time.Minute

// A RefusedError says that a call has not been made, because a limit does not allow it. The errors
// of [http.Client] wrap it.
type RefusedError struct {
	Host       string
	RetryAfter time.Duration // how long until the call could be made, as far as is known; see Never
	Rules      []string      // names of the program's rules that refuse the call; empty if the server's limits do
}

// Never reports whether no wait helps, because the program's rules never allow the call.
// RetryAfter is then 0.
func (e *RefusedError) Never() bool { return len(e.Rules) > 0 && e.RetryAfter == 0 }

// Error implements error.
func (e *RefusedError) Error() string {
	limit := "the server allows"
	if len(e.Rules) > 0 {
		limit = "allowed by " + strings.Join(e.Rules, ", ")
	}
	if e.Never() {
		return fmt.Sprintf("client: no call to %s: it would be more than %s; repeating it does not help", e.Host, limit)
	}
	return fmt.Sprintf("client: no call to %s: it would be more than %s; it may be repeated in %v", e.Host, limit, e.RetryAfter)
}

// RoundTrip implements http.RoundTripper. The error is a *RefusedError if a limit does not allow
// the call, that of the context if it ends before the call is sent, or that of Base. A call
// releases its slots of concurrency rules when the body of its response is closed or read to its
// end.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h := t.host(actors.Host(r.URL.Host))
	defer t.release(h)
	d, c, err := t.admit(r, h)
	if err != nil {
		d.Done()
		if r.Body != nil {
			_ = r.Body.Close() // Base has not seen it
		}
		return nil, err
	}
	response, err := t.base().RoundTrip(r)
	if unsent(err) {
		h.drop(c)
	} else {
		h.answered(c, response)
	}
	if err == nil {
		d.SetStatus(response.StatusCode)
	} else {
		d.SetStatus(0)
	}
	if err != nil || len(d.Verdicts) == 0 || response.Body == nil || response.Body == http.NoBody {
		d.Done()
		return response, err
	}
	held := &body{ReadCloser: response.Body, decision: d}
	response.Body = held
	if w, ok := held.ReadCloser.(io.Writer); ok { // the connection of an upgraded protocol
		response.Body = connection{held, w}
	}
	return response, nil
}

// unsent reports whether a call failed before it had a connection.
func unsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && (e.Op == "dial" || e.Op == "proxyconnect")
}

// CloseIdleConnections closes the idle connections of Base. [http.Client] calls it.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// admit waits until the call may be sent. First it waits until the server would allow the
// call, and reserves nothing. Otherwise the program's rules would count calls that wait for the
// server, and that are then sent all at once.
func (t *Transport) admit(r *http.Request, h *host) (d diana.Decision, c *call, err error) {
	ctx, path := r.Context(), method(r)+" "+folder(r.URL)
	maxWait := t.MaxWait
	switch {
	case maxWait == 0:
		maxWait = defaultMaxWait
	case maxWait < 0:
		maxWait = 0
	}
	if t.Limiter != nil {
		began := time.Now()
		if err := h.ready(ctx, path, maxWait); err != nil {
			return d, nil, err
		}
		maxWait -= time.Since(began)
		if d, err = t.take(ctx, r, h.name); err != nil {
			return d, nil, err
		}
	}
	c, err = h.enter(ctx, path, max(maxWait, 0))
	return d, c, err
}

// take evaluates a call by the program's own rules.
func (t *Transport) take(ctx context.Context, r *http.Request, host string) (diana.Decision, error) {
	seen := r.WithContext(ctx) // a copy without the body, which only Base reads
	seen.Body = nil
	if seen.Host == "" {
		seen.Host = r.URL.Host
	}
	d, err := t.Limiter.Take(ctx, diana.Request{
		Method: method(r), Path: path(r.URL), HTTP: seen, Actors: map[string]string{"host": host},
	})
	if err != nil || d.Allowed {
		return d, err
	}
	e := &RefusedError{Host: host, RetryAfter: d.RetryAfter}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			e.Rules = append(e.Rules, v.Rule.Name)
		}
	}
	return d, e
}

// method returns the method of a call as it is sent.
func method(r *http.Request) string { return cmp.Or(r.Method, http.MethodGet) }

// path returns the path of a URL as it is sent.
func path(u *url.URL) string {
	if u.Opaque == "" {
		return u.EscapedPath()
	}
	opaque, _, _ := strings.Cut(u.Opaque, "?")
	_, path, _ := strings.Cut(strings.TrimPrefix(opaque, "//"), "/")
	return "/" + path
}

// folder returns the path of a URL up to its last slash.
func folder(u *url.URL) string {
	p := path(u)
	return p[:strings.LastIndexByte(p, '/')+1]
}

// maxHosts is how many hosts a Transport remembers. It forgets the least recently called ones.
const maxHosts = 1000

// host returns what is known of a host. The caller must release it.
func (t *Transport) host(name string) *host {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uses++
	h := t.hosts[name]
	if h == nil {
		h = &host{name: name}
		if t.hosts == nil {
			t.hosts = map[string]*host{}
		}
		if len(t.hosts) >= maxHosts {
			t.forget()
		}
		if len(t.hosts) < maxHosts { // otherwise all hosts are in use, and the Transport does not remember this one
			t.hosts[name] = h
		}
	}
	h.used = t.uses
	h.users++
	return h
}

// forget forgets the least recently called host of those that are not in use. t.mu is held.
func (t *Transport) forget() {
	oldest, name := uint64(math.MaxUint64), ""
	for n, h := range t.hosts {
		if h.users == 0 && h.used < oldest {
			oldest, name = h.used, n
		}
	}
	if oldest != math.MaxUint64 {
		delete(t.hosts, name)
	}
}

// release says that a call no longer uses a host.
func (t *Transport) release(h *host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.users--
}

// body ends the decision on a call when its response has been read.
type body struct {
	io.ReadCloser
	once     sync.Once
	decision diana.Decision
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.decision.Done)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.once.Do(b.decision.Done)
	return b.ReadCloser.Close()
}

// connection is the body of a response that upgrades the protocol.
type connection struct {
	*body
	io.Writer
}

// CloseWrite tells the server that the client sends no more. The server may still send.
func (c connection) CloseWrite() error {
	if w, ok := c.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("client: CloseWrite: %w", http.ErrNotSupported)
}
