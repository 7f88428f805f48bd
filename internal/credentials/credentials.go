// SPDX-License-Identifier: MIT

// Package credentials finds the credentials in the header of a request, and has each verified by its kind. It
// knows neither rules nor how a kind verifies.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// MostToken is the longest credential, in bytes.
const MostToken = 8 << 10

// The kinds of credentials.
const (
	keyKind = "key"
	jwtKind = "jwt"
)

// Verify returns what a credential of one kind proves. The error is a *rule.CredentialError.
type Verify func(ctx context.Context, token string) (rule.Proof, error)

// Checker verifies the credentials of requests. It never changes.
type Checker struct {
	Required bool              // a request without a valid credential is rejected
	Kinds    map[string]Verify // by kind
	Fields   []string          // in which keys are, in canonical form

	// Upstream returns the fields that a request with a valid credential gets, in canonical form. May be nil.
	Upstream      func() (http.Header, error)
	UpstreamNames []string
}

// Given are the credentials of a request.
type Given struct {
	tokens map[string]string // by kind
	fields []string
	bad    string // why they are not valid, whatever they are
}

// Any reports whether the request has a credential.
func (g *Given) Any() bool { return len(g.fields) > 0 }

const authorization = "Authorization"

// Find returns the credentials in a header.
func (c *Checker) Find(h http.Header) (g Given) {
	// A Bearer token is a credential of this gateway if it knows JWTs, whatever fields have the keys.
	if c.Kinds[jwtKind] != nil {
		g.add(c, h, authorization)
	}
	for _, field := range c.Fields {
		if field != authorization || c.Kinds[jwtKind] == nil {
			g.add(c, h, field)
		}
	}
	return g
}

// add adds the credential in a field, if there is one.
func (g *Given) add(c *Checker, h http.Header, field string) {
	lines := h[field]
	if len(lines) == 0 {
		return
	}
	token, kind := httptext.Trim(lines[0]), keyKind
	for _, line := range lines[1:] {
		if line != lines[0] {
			g.fields, g.bad = append(g.fields, field), "the request has several credentials in one field"
			return
		}
	}
	if token == "" {
		return
	}
	if field == authorization {
		scheme, rest, ok := strings.Cut(token, " ")
		switch {
		case strings.EqualFold(scheme, "Bearer"):
			if token = httptext.Trim(rest); isJWT(token) {
				kind = jwtKind
			}
		case ok: // another scheme, which is for the upstream
			return
		}
	}
	g.fields = append(g.fields, field)
	other, twice := g.tokens[kind]
	switch {
	case c.Kinds[kind] == nil:
		g.bad = "the credential is of a kind that is not accepted"
	case token == "" || len(token) > MostToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		g.bad = fmt.Sprintf("the credential is no text of at most %d visible bytes", MostToken)
	case twice && other != token:
		g.bad = "the request has different credentials in several fields"
	}
	if g.tokens == nil {
		g.tokens = map[string]string{}
	}
	g.tokens[kind] = token
}

// isJWT reports whether a token has the form of a JWT: three parts in base64url. A part can be empty.
func isJWT(token string) bool {
	dots := 0
	for i := range len(token) {
		switch c := token[i]; {
		case c == '.':
			dots++
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return dots == 2
}

// Missing is the error of a request that lacks a credential.
func Missing() error {
	return &rule.CredentialError{Status: http.StatusUnauthorized, Reason: "the request lacks a token or an API key", Missing: true}
}

// Verify returns what all credentials prove, by their kinds. Each of them must be valid. The error is a
// *rule.CredentialError, or ctx's.
func (c *Checker) Verify(ctx context.Context, g *Given) (map[string]rule.Proof, error) {
	if g.bad != "" {
		return nil, &rule.CredentialError{Status: http.StatusUnauthorized, Reason: g.bad}
	}
	proofs := make(map[string]rule.Proof, len(g.tokens))
	for kind, token := range g.tokens {
		proof, err := c.Kinds[kind](ctx, token)
		var failed *rule.CredentialError
		switch {
		case err == nil:
			proofs[kind] = proof
		case errors.As(err, &failed):
			return nil, failed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default: // a verifier of the program
			return nil, &rule.CredentialError{Status: http.StatusUnauthorized, Reason: "the credential is not valid"}
		}
	}
	return proofs, nil
}

// Fields returns the fields that have the credentials.
func (g *Given) Fields() []string { return g.fields }
