// SPDX-License-Identifier: MIT

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Pool is a RoundTripper that sends requests to several upstreams in turn. It learns from the requests which
// upstreams work, and sends none to an upstream that does not, see member.
//
// If an upstream fails, the pool sends the request once more, to another upstream. It does so only if the
// first upstream cannot have carried out the request, or may do so twice:
//
//	the connection could not be made      any method
//	no answer, but no timeout             methods that RFC 9110 calls idempotent, and any with Idempotency-Key
//	no byte of the body has been read     in both cases, because the gateway keeps no copy of a body
//
// An answer of 502, 503 or 504 is passed on, because a retry would double the load of busy upstreams.
type Pool struct {
	logger  *slog.Logger
	members []*member

	mu   sync.Mutex // guards next, and the members' health
	next int        // the index of the next member
}

// NewPool returns the pool of these upstreams.
func NewPool(upstreams []*url.URL, t Timeouts, logger *slog.Logger) *Pool {
	p := &Pool{logger: logger}
	for _, u := range upstreams {
		transport, to := transportTo(u, t)
		p.members = append(p.members, &member{name: u.String(), to: to, transport: transport})
	}
	return p
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) {
	first, probe := p.pick(nil, time.Now())
	attempt, body := first.request(r), holdBody(r)
	if body != nil {
		attempt.Body = body
	}
	answer, err := first.transport.RoundTrip(attempt)
	p.learn(first, probe, r, answer, err)
	if err == nil || r.Context().Err() != nil || !mayRetry(r, err) || !body.release() {
		return answer, err
	}
	second, probe := p.pick(first, time.Now())
	p.mu.Lock()
	first.retries++
	p.mu.Unlock()
	answer, err = second.transport.RoundTrip(second.request(r))
	p.learn(second, probe, r, answer, err)
	return answer, err
}

// pick returns the member that is next, except for one that has just failed. It skips members that are
// out of service, unless all are. probe says that the member is out of service, and its pause has ended.
func (p *Pool) pick(except *member, now time.Time) (m *member, probe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.members {
		candidate := p.members[p.next]
		p.next = (p.next + 1) % len(p.members)
		if candidate == except {
			continue
		}
		if candidate.pause == 0 || !now.Before(candidate.until) {
			m = candidate
			break
		}
		if m == nil || candidate.until.Before(m.until) {
			m = candidate
		}
	}
	probe = m.pause > 0 && !now.Before(m.until)
	if probe {
		m.until = now.Add(m.pause) // until the result is known, others do not try it
	}
	return m, probe
}

// learn notes how an attempt ended.
func (p *Pool) learn(m *member, probe bool, r *http.Request, answer *http.Response, err error) {
	if isUnsent(err) {
		if probe {
			p.mu.Lock()
			m.until = time.Now() // the next request is the probe
			p.mu.Unlock()
		}
		return
	}
	reason, known := verdict(r, answer, err)
	p.mu.Lock()
	m.requests++
	var changed bool
	switch {
	case !known:
	case reason != nil:
		changed = m.fail(probe, time.Now())
	default:
		changed = m.succeed()
	}
	pause := m.pause
	p.mu.Unlock()
	switch {
	case changed && reason != nil:
		p.logger.Warn("upstream out of service", "upstream", m.name, "reason", reason, "for", pause)
	case changed:
		p.logger.Info("upstream back in service", "upstream", m.name)
	}
}

// verdict returns why an attempt is a failure of the upstream, or nil. It is not known if the client has ended
// the attempt. An upstream that does not answer a request to upgrade may speak HTTP/2 alone, so that says
// nothing about other requests.
func verdict(r *http.Request, answer *http.Response, err error) (reason any, known bool) {
	if err == nil {
		if err := answerable(answer); err != nil {
			return err, true
		}
		if unavailable(answer.StatusCode) {
			return answer.Status, true
		}
		return nil, true
	}
	switch {
	case bodyFailed(r.Context()):
		return nil, false
	case r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errUpstreamLate):
		return nil, false
	case r.Header.Get("Upgrade") != "" && !unconnected(err) && !timedOut(err):
		return nil, false
	}
	return err, true
}

// unavailable reports whether an answer of this status counts as a failure of the upstream.
func unavailable(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// mayRetry reports whether a request that failed with err may go to another upstream, as far as its body
// allows that.
func mayRetry(r *http.Request, err error) bool {
	return unconnected(err) || idempotent(r) && !timedOut(err) && !isUnsent(err)
}

// timedOut reports whether err says that the upstream was too slow.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// unconnected reports whether err says that no connection could be made, so that the upstream has nothing of
// the request.
func unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate) || errors.As(err, &noTLS)
}

// idempotent reports whether an upstream may carry out a request twice.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}
