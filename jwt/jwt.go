// SPDX-License-Identifier: MIT

// Package jwt verifies JSON Web Tokens, so that rules of Diana can count by their claims. It uses only what any
// program can add to a [config.Vocabulary]:
//
//	v := config.DefaultVocabulary()
//	v.Actors = append(v.Actors, jwt.Kind())
//	v.Verifiers = append(v.Verifiers, jwt.Verifier())
//
// golang-jwt verifies a token and go-jose reads keys. Neither fetches: keys.go does, because a token must not make
// requests wait, nor fetch more often than the interval. Open keys.go to see when keys are fetched, and cache.go for
// what is remembered.
package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
	"github.com/golang-jwt/jwt/v5"
)

const (
	leeway     = time.Minute // by which clocks may differ
	mostToken  = 8 << 10     // bytes
	longestKid = 256         // bytes
)

// Kind returns the actors jwt:CLAIM and jwt:/POINTER.
func Kind() rule.ActorKind {
	return rule.ActorKind{Kind: "jwt", Named: true, Proved: true, Check: func(name string) error {
		for _, part := range strings.Split(name, "~")[1:] {
			if name[0] == '/' && !strings.HasPrefix(part, "0") && !strings.HasPrefix(part, "1") {
				return errors.New("expected jwt:CLAIM or jwt: and a JSON pointer, where ~ is ~0 or ~1")
			}
		}
		return nil
	}}
}

// Verifier returns what verifies tokens by the jwt of a configuration.
func Verifier() config.Verifier {
	return config.Verifier{Kind: "jwt", Open: func(c *config.Credentials, logger *slog.Logger) (func(context.Context, string) (rule.Proof, error), error) {
		if len(c.JWT) == 0 {
			return nil, nil
		}
		v := &verifier{now: time.Now}
		for _, of := range c.JWT {
			k, err := openKeys(of, logger)
			if err != nil {
				return nil, err
			}
			v.issuers = append(v.issuers, newIssuer(of, k, v))
		}
		return v.verify, nil
	}}
}

// verifier verifies the tokens of some issuers.
type verifier struct {
	issuers []*issuer
	good    cache
	bad     cache
	now     func() time.Time
}

// issuer is an issuer of tokens.
type issuer struct {
	config.Issuer
	keys   *keys
	parser *jwt.Parser
}

func newIssuer(of config.Issuer, k *keys, v *verifier) *issuer {
	return &issuer{of, k, jwt.NewParser(jwt.WithValidMethods(of.Algorithms), jwt.WithIssuer(of.Issuer), jwt.WithAudience(of.Audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
		jwt.WithTimeFunc(func() time.Time { return v.now() }))}
}

func refused(why string) *rule.CredentialError {
	return &rule.CredentialError{Status: http.StatusUnauthorized, Reason: "the token is not valid: " + why}
}

var (
	errToken = refused("it is no signed JWT of an issuer that is known here")
	errKid   = refused("its issuer has no such key")
	errKeys  = &rule.CredentialError{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Reason: "the keys of the token's issuer are not available"}
)

// verify returns the claims of a token. It waits for keys for at most maxWait.
func (v *verifier) verify(ctx context.Context, token string) (rule.Proof, error) {
	now := v.now()
	sum := sha256.Sum256([]byte(token))
	if e := v.good.get(sum); e != nil && e.valid(now) {
		return e.proof, nil
	}
	if e := v.bad.get(sum); e != nil && now.Before(e.until) {
		return nil, e.err
	}
	e := v.check(ctx, token, now)
	switch {
	case e.err == nil:
		v.good.put(sum, e)
		return e.proof, nil
	case e.err.Status == http.StatusUnauthorized && ctx.Err() == nil:
		e.until = now.Add(badFor)
		v.bad.put(sum, e)
	}
	return nil, e.err
}

// check verifies a token that is not remembered.
func (v *verifier) check(ctx context.Context, token string, now time.Time) *entry {
	if len(token) > mostToken {
		return &entry{err: errToken}
	}
	claims := jwt.MapClaims{}
	t, _, err := jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithJSONNumber()).ParseUnverified(token, claims)
	if err != nil || !plain(t.Header) {
		return &entry{err: errToken}
	}
	of, _ := claims["iss"].(string)
	failed := errToken
	for _, i := range v.issuers {
		if i.Issuer.Issuer != of || !slices.Contains(i.Algorithms, t.Method.Alg()) {
			continue
		}
		var e *entry
		if e = i.check(ctx, token, t, now); e.err == nil {
			return e
		}
		failed = e.err
	}
	return &entry{err: failed}
}

// plain reports whether a header has nothing that names keys elsewhere, must be understood, or wraps another token.
func plain(header map[string]any) bool {
	for _, name := range []string{"jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty"} {
		if _, has := header[name]; has {
			return false
		}
	}
	if kid, has := header["kid"]; has {
		text, ok := kid.(string)
		return ok && text != "" && len(text) <= longestKid
	}
	return true
}

// check verifies a token by the keys of the issuer that it names.
func (i *issuer) check(ctx context.Context, token string, t *jwt.Token, now time.Time) *entry {
	kid, _ := t.Header["kid"].(string)
	k, err := i.keys.find(ctx, kid, t.Method.Alg(), now)
	if err != nil {
		return &entry{err: err}
	}
	claims := jwt.MapClaims{}
	if _, err := i.parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return k.public, nil }); err != nil {
		return &entry{err: why(err)}
	}
	exp, err2 := claims.GetExpirationTime()
	if err2 != nil || exp == nil {
		return &entry{err: errToken}
	}
	return &entry{keys: i.keys, key: k, until: exp.Add(leeway), size: len(token), proof: func(name string) string { return claim(claims, name) }}
}

// why returns the mistake of a token, without what the token says.
func why(err error) *rule.CredentialError {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return refused("it has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return refused("it is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return refused("it is for another audience")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return refused("it lacks exp, iss or aud")
	}
	return errToken
}

// fits reports whether an algorithm is one for a key. The type of the key fixes it, so a public key is never a secret.
func fits(public any, alg string) bool {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && 2048 <= k.N.BitLen() && k.N.BitLen() <= 4096
	case *ecdsa.PublicKey:
		return alg == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize]
	case ed25519.PublicKey:
		return alg == "EdDSA"
	case []byte:
		return strings.HasPrefix(alg, "HS") && len(k) >= 32
	}
	return false
}

// claim returns a claim that is a text, a number or a truth value, or "".
func claim(claims map[string]any, name string) string {
	var v any = jwt.MapClaims(claims)
	if pointer, ok := strings.CutPrefix(name, "/"); ok {
		for part := range strings.SplitSeq(pointer, "/") {
			part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
			switch in := v.(type) {
			case jwt.MapClaims:
				v = in[part]
			case map[string]any:
				v = in[part]
			case []any:
				n, err := strconv.Atoi(part)
				if err != nil || n < 0 || n >= len(in) || strconv.Itoa(n) != part {
					return ""
				}
				v = in[n]
			default:
				return ""
			}
		}
	} else {
		v = claims[name]
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
