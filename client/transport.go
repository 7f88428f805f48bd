// SPDX-License-Identifier: MIT

// Package client keeps the calls that a program makes within limits: its own, which are rules
// in the same YAML that limits servers, and those that the servers tell in their answers.
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

// Transport is an http.RoundTripper that holds calls back, or does not make them, so that
// they stay within limits. The zero value keeps those that servers tell. It is safe for
// concurrent use, starts no goroutine, and must not be copied once it is in use.
//
// What servers tell is Retry-After in answers of 429 and 503, and how many calls are left
// in RateLimit (draft-ietf-httpapi-ratelimit-headers-11), RateLimit-Remaining or
// X-RateLimit-Remaining. It is kept for each host, in such a way that a server which tells
// the truth refuses no call after its first answer, as long as nobody else uses up what it
// grants. Once nothing is left the calls wait, in order, until the server said that there is
// more; then one goes ahead, and its answer tells how many may follow. What partition of its
// limits a server counts a call to (the parameter pk) is not known before, so a program
// that calls as several accounts needs a Transport for each.
type Transport struct {
	// Base makes the calls. Nil means http.DefaultTransport.
	Base http.RoundTripper

	// Limiter has the program's own rules. A call is judged by its method, the path of its
	// URL, its header, and its URL's host, which is the actor "host". Nil means no rules.
	Limiter *diana.Limiter

	// MaxWait is how long a call waits for what its server allows, at most; it fails at
	// once if that is known to take longer, or longer than its context lasts. 0 means a
	// minute, and a negative one that no call waits. How long calls wait for the program's
	// own rules is said in these, by wait and LB.
	MaxWait time.Duration

	mu    sync.Mutex // guards the rest
	hosts map[string]*host
	uses  uint64
}

const usualWait = time.Minute

// RefusedError tells that a call has not been made, as it would be more than a limit
// allows. What [http.Client] returns wraps it.
type RefusedError struct {
	Host       string
	RetryAfter time.Duration // after how long the call could be made, as far as is known; see Never
	Rules      []string      // names of the program's rules that refuse; none: the server's limits do
}

// Never reports whether no wait helps, because the program's rules never allow the call.
// RetryAfter is then 0.
func (e *RefusedError) Never() bool { return len(e.Rules) > 0 && e.RetryAfter == 0 }

// Error implements error.
func (e *RefusedError) Error() string {
	who := "the server allows"
	if len(e.Rules) > 0 {
		who = "allowed by " + strings.Join(e.Rules, ", ")
	}
	if e.Never() {
		return fmt.Sprintf("client: no call to %s: it would be more than %s; repeating it does not help", e.Host, who)
	}
	return fmt.Sprintf("client: no call to %s: it would be more than %s; it may be repeated in %v", e.Host, who, e.RetryAfter)
}

// RoundTrip implements http.RoundTripper. The error is a *RefusedError for a call that has not
// been made for the limits' sake, the context's if that ended before, or that of Base. A place
// under a rule of concurrency is free again when the answer's body is closed or read to its end.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h := t.host(actors.Host(r.URL.Host))
	defer t.release(h)
	d, c, err := t.admit(r, h)
	if err != nil {
		d.Done()
		if r.Body != nil {
			_ = r.Body.Close() // nobody has read it
		}
		return nil, err
	}
	answer, err := t.base().RoundTrip(r)
	if unsent(err) {
		h.drop(c)
	} else {
		h.answered(c, answer)
	}
	if err == nil {
		d.SetStatus(answer.StatusCode)
	}
	if err != nil || len(d.Verdicts) == 0 || answer.Body == nil || answer.Body == http.NoBody {
		d.Done()
		return answer, err
	}
	held := &body{ReadCloser: answer.Body, decision: d}
	answer.Body = held
	if w, ok := held.ReadCloser.(io.Writer); ok { // the connection, of a changed protocol
		answer.Body = connection{held, w}
	}
	return answer, nil
}

// unsent reports whether a call has failed before there was a connection.
func unsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && (e.Op == "dial" || e.Op == "proxyconnect")
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
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

// admit waits until the call may be made. First it waits for the server, without a promise;
// else the own rules would count calls that go on only later, all together.
func (t *Transport) admit(r *http.Request, h *host) (d diana.Decision, c *call, err error) {
	ctx, path := r.Context(), method(r)+" "+folder(r.URL)
	patience := t.MaxWait
	switch {
	case patience == 0:
		patience = usualWait
	case patience < 0:
		patience = 0
	}
	if t.Limiter != nil {
		began := time.Now()
		if err := h.ready(ctx, path, patience); err != nil {
			return d, nil, err
		}
		patience -= time.Since(began)
		if d, err = t.take(ctx, r, h.name); err != nil {
			return d, nil, err
		}
	}
	c, err = h.enter(ctx, path, max(patience, 0))
	return d, c, err
}

// take judges a call by the program's own rules.
func (t *Transport) take(ctx context.Context, r *http.Request, host string) (diana.Decision, error) {
	seen := r.WithContext(ctx) // a copy; the body is not Take's to read
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

// mostHosts bounds how many hosts are remembered. Those that are called least recently are
// forgotten.
const mostHosts = 1000

// host returns what is known of a host, which must be released.
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
		if len(t.hosts) >= mostHosts {
			t.forget()
		}
		if len(t.hosts) < mostHosts { // else all are being called, and this one is forgotten at once
			t.hosts[name] = h
		}
	}
	h.used = t.uses
	h.users++
	return h
}

// forget forgets the host that has been called least recently, of those that are not being
// called. t.mu is held.
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

func (t *Transport) release(h *host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.users--
}

// body ends the decision on a call when its answer has been read.
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

// connection is the body of an answer that changes the protocol.
type connection struct {
	*body
	io.Writer
}

// CloseWrite tells the server that nothing more comes, which may still answer.
func (c connection) CloseWrite() error {
	if w, ok := c.Writer.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("client: CloseWrite: %w", http.ErrNotSupported)
}
