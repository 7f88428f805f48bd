// SPDX-License-Identifier: MIT

package diana

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/credentials"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/established"
)

// newCredentials returns what verifies the credentials of a configuration, or nil if it has none.
func newCredentials(c *config.Credentials, o Options) (*credentials.Checker, error) {
	checker := &credentials.Checker{Required: c.Required, Kinds: map[string]credentials.Verify{}}
	for _, v := range o.Vocabulary.Verifiers {
		verify, err := v.Open(c, o.Logger)
		if err != nil {
			return nil, err
		}
		if verify != nil {
			checker.Kinds[v.Kind] = verify
		}
	}
	if c.Keys != nil {
		checker.Fields = c.Keys.Headers
	}
	if len(checker.Kinds) == 0 {
		return nil, nil
	}
	if len(c.UpstreamHeaders) > 0 {
		s := &secrets{of: c.UpstreamHeaders}
		if _, err := s.header(); err != nil {
			return nil, err
		}
		checker.Upstream, checker.UpstreamNames = s.header, slices.Sorted(maps.Keys(c.UpstreamHeaders))
	}
	return checker, nil
}

// secrets are the fields that the upstream gets. It reads their values again at most once a second.
type secrets struct {
	of map[string]config.Secret

	mu    sync.Mutex
	at    time.Time
	known http.Header
}

// header returns the fields. If one can no longer be read, it returns those of the last time.
func (s *secrets) header() (http.Header, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil && time.Since(s.at) < time.Second {
		return s.known, nil
	}
	h := http.Header{}
	for name, secret := range s.of {
		value, err := secret.Value()
		if err != nil && s.known == nil {
			return nil, fmt.Errorf("identity.upstream_headers: %s: %w", name, err)
		}
		if err != nil {
			value = s.known.Get(name)
		}
		h[name] = []string{value}
	}
	s.at, s.known = time.Now(), h
	return h, nil
}

// proved returns r as the next handler gets it: without the fields that have proved an identity, and with those
// of the upstream. Filters behind Handler find the proofs in its context.
func proved(r *http.Request, e *decide.Evaluation, a *active) *http.Request {
	proofs, fields := e.Proved()
	if len(fields) == 0 && len(a.credentials.UpstreamNames) == 0 {
		return r
	}
	if len(fields) > 0 {
		known := established.In(r.Context())
		known.Proofs = proofs
		r = r.WithContext(known.Within(r.Context()))
	} else {
		r = r.WithContext(r.Context()) // a copy
	}
	r.Header = r.Header.Clone()
	setUpstream(r.Header, fields, a.credentials)
	return r
}

// setUpstream changes a header as the upstream of a request gets it whose credentials were in fields.
func setUpstream(h http.Header, fields []string, c *credentials.Checker) {
	for _, field := range fields {
		delete(h, field)
	}
	for _, name := range c.UpstreamNames {
		delete(h, name) // that of a client is never believed
	}
	if len(fields) > 0 && c.Upstream != nil {
		if own, err := c.Upstream(); err == nil {
			maps.Copy(h, own)
		}
	}
}

// SetUpstream changes the header of an allowed request as Handler does for the next handler. It removes the fields
// with valid credentials, and sets those that the configuration has for the upstream. Call it before Done.
func (d *Decision) SetUpstream(h http.Header) {
	e := d.handle.Evaluation()
	if e == nil {
		return
	}
	if a := e.Limits().Attached.(*active); a.credentials != nil {
		_, fields := e.Proved()
		setUpstream(h, fields, a.credentials)
	}
}
