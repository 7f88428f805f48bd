// SPDX-License-Identifier: MIT

package jwt

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
	"github.com/go-jose/go-jose/v4"
)

// When keys are fetched. A token can start a fetch, and never more often than these intervals.
const (
	maxWait      = 200 * time.Millisecond // of a token with an unknown kid
	fetchTimeout = 5 * time.Second
	freshFor     = 5 * time.Minute  // then the next token starts a fetch, and does not wait
	between      = 10 * time.Second // fetches because of unknown kids
	retry        = time.Second      // while there are no keys, and looks at a file
	mostJWKS     = 1 << 20          // bytes
	mostKeys     = 100
)

// key is a key of an issuer.
type key struct {
	kid, alg string // alg may be empty
	public   any    // as golang-jwt wants it
}

// set is a JWKS. It never changes.
type set struct {
	keys []*key
	text []byte
	at   time.Time // when it was fetched last
}

// keys are those of an issuer. They have no goroutine except one while a fetch runs.
type keys struct {
	where  string // URL, or path of a file
	file   bool
	stale  time.Duration
	logger *slog.Logger
	client *http.Client
	now    func() time.Time

	set atomic.Pointer[set] // the last good one; nil: none yet

	mu      sync.Mutex
	started time.Time     // the last fetch
	running chan struct{} // is closed when the fetch ends; nil: none runs
	failed  string        // the last error, so that each is logged once
}

// openKeys returns the keys of an issuer. It reads a file, and fetches nothing.
func openKeys(of config.Issuer, logger *slog.Logger) (*keys, error) {
	path, file := strings.CutPrefix(of.Keys, "file:")
	k := &keys{where: of.Keys, file: file, stale: of.Stale, logger: logger, now: time.Now}
	if !file {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		transport.MaxResponseHeaderBytes = 64 << 10
		k.client = &http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		return k, nil
	}
	k.where = strings.TrimPrefix(path, "//")
	k.started = k.now()
	if err := k.fetch(); err != nil {
		return nil, fmt.Errorf("identity.jwt: %s: %w", k.where, err)
	}
	return k, nil
}

// current returns the last good keys, or nil if they are too old.
func (k *keys) current(now time.Time) *set {
	s := k.set.Load()
	if s == nil || !k.file && now.Sub(s.at) > k.stale {
		return nil
	}
	return s
}

// has reports whether a key is still one of the issuer.
func (k *keys) has(key *key, now time.Time) bool {
	k.refresh(now, freshFor)
	s := k.current(now)
	if s == nil {
		return false
	}
	for _, other := range s.keys {
		if other == key {
			return true
		}
	}
	return false
}

// find returns the key of a token with this kid and algorithm. kid may be empty: then there must be one key alone
// for the algorithm. It waits for a fetch for at most maxWait.
func (k *keys) find(ctx context.Context, kid, alg string, now time.Time) (*key, *rule.CredentialError) {
	k.refresh(now, freshFor)
	if key := k.current(now).find(kid, alg); key != nil {
		return key, nil
	}
	if running := k.refresh(now, between); running != nil {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case <-running:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s := k.current(k.now())
	if s == nil {
		return nil, errKeys
	}
	if key := s.find(kid, alg); key != nil {
		return key, nil
	}
	return nil, errKid
}

func (s *set) find(kid, alg string) (found *key) {
	if s == nil {
		return nil
	}
	for _, key := range s.keys {
		if !fits(key.public, alg) || key.alg != "" && key.alg != alg || kid != "" && key.kid != kid {
			continue
		}
		if kid != "" {
			return key
		}
		if found != nil {
			return nil
		}
		found = key
	}
	return found
}

// refresh starts a fetch if the last one started at least the interval ago, and none runs. It returns the fetch that
// runs, or nil. Without keys, and for a file, the interval is shorter.
func (k *keys) refresh(now time.Time, interval time.Duration) chan struct{} {
	none := k.current(now) == nil
	if none || k.file {
		interval = retry
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running != nil || now.Sub(k.started) < interval && !now.Before(k.started) {
		return k.running
	}
	k.started = now
	if k.file { // as fast as a goroutine
		k.note(k.fetch())
		return nil
	}
	running := make(chan struct{})
	k.running = running
	go func() {
		err := k.fetch()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.note(err)
		k.running = nil
		close(running)
	}()
	return running
}

// note logs a change of the last error. k.mu is held.
func (k *keys) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != k.failed && err != nil {
		k.logger.Error("keys of tokens not changed", "keys", k.where, "error", err)
	} else if text != k.failed {
		k.logger.Info("keys of tokens are available again", "keys", k.where)
	}
	k.failed = text
}

// fetch replaces the keys. On an error they stay.
func (k *keys) fetch() error {
	text, err := k.read()
	if err != nil {
		return err
	}
	before := k.set.Load()
	next := &set{text: text, at: k.now()}
	if before != nil && bytes.Equal(before.text, text) {
		next.keys = before.keys // so that remembered tokens stay valid
	} else if next.keys, err = parse(text, k.file); err != nil {
		return err
	} else if before != nil {
		next.keep(before)
	}
	k.set.Store(next)
	return nil
}

// keep replaces the keys that the issuer had before by the same ones, by which remembered tokens are valid.
func (s *set) keep(before *set) {
	for i, key := range s.keys {
		for _, old := range before.keys {
			if same, ok := old.public.(interface{ Equal(crypto.PublicKey) bool }); ok && old.kid == key.kid && old.alg == key.alg && same.Equal(key.public) {
				s.keys[i] = old
			}
		}
	}
}

// read returns the text of the JWKS.
func (k *keys) read() ([]byte, error) {
	if k.file {
		f, err := os.Open(k.where)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		return readAll(f)
	}
	answer, err := k.client.Get(k.where)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // the same
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d, expected 200", answer.StatusCode)
	}
	return readAll(answer.Body)
}

func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostJWKS+1))
	if err == nil && len(text) > mostJWKS {
		err = fmt.Errorf("there are more than %d bytes, expected at most that", mostJWKS)
	}
	return text, err
}

// parse returns the keys of a JWKS that can verify tokens. It skips others, as RFC 7517 says. Secret keys are only in
// files.
func parse(text []byte, file bool) ([]*key, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, errors.New("this is no JWKS, expected a JSON object with keys")
	}
	if len(document.Keys) > mostKeys {
		return nil, fmt.Errorf("there are %d keys, expected at most %d", len(document.Keys), mostKeys)
	}
	var list []*key
	for _, raw := range document.Keys {
		var j jose.JSONWebKey
		if json.Unmarshal(raw, &j) != nil || j.Use != "" && j.Use != "sig" || len(j.KeyID) > longestKid {
			continue
		}
		public := j.Key
		if _, secret := public.([]byte); !secret {
			if !j.Valid() {
				continue
			}
			public = j.Public().Key
		} else if !file {
			continue
		}
		k := &key{kid: j.KeyID, alg: j.Algorithm, public: public}
		for _, alg := range []string{"RS256", "ES256", "ES384", "ES512", "EdDSA", "HS256"} {
			if fits(public, alg) {
				list = append(list, k)
				break
			}
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no key that can verify tokens, expected RSA of 2048 to 4096 bits, EC or Ed25519")
	}
	return list, nil
}
