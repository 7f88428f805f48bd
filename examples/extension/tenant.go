// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// tenantKey is what the tenant is found by in a request's context.
type tenantKey struct{}

// tenant counts by the tenant that a filter in front of the limiter has verified. A request
// without one counts by its address, as with every actor.
func tenant() rule.ActorKind {
	return rule.ActorKind{
		Kind: "tenant",
		Find: func(r *http.Request, _ string) string { return tenantOf(r.Context()) },
	}
}

// tenantOf returns the tenant whose token a request has shown, or "".
func tenantOf(ctx context.Context) string {
	name, _ := ctx.Value(tenantKey{}).(string)
	return name
}

// verify is the filter in front of the limiter: it puts the tenant of a valid token into the
// request's context. Without a valid token the request proceeds without a tenant, so that the
// rules count attempts to guess tokens by address; required refuses it after the limiter.
func verify(key []byte, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := bearer(r.Header); ok {
			if name, err := tenantIn(token, key, time.Now()); err == nil {
				r = r.WithContext(context.WithValue(r.Context(), tenantKey{}, name))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// required is the filter behind the limiter: it refuses who is not a tenant.
func required(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tenantOf(r.Context()) == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "A valid token is needed.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer returns the only token of a request (RFC 6750). With two of them the server behind
// could believe the other one.
func bearer(h http.Header) (string, bool) {
	fields := h.Values("Authorization")
	if len(fields) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

var errToken = errors.New("not a valid token")

// tenantIn returns the claim "tenant" of a JSON Web Token that was signed with key by HMAC and
// SHA-256. Nothing of a token is read before its signature has been found good: the
// algorithm is fixed, whatever the token says.
func tenantIn(token string, key []byte, now time.Time) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errToken
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(parts[0] + "." + parts[1]))
	signature := base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	if !hmac.Equal([]byte(parts[2]), []byte(signature)) { // which takes as long for every wrong one
		return "", errToken
	}
	var header struct {
		Algorithm string          `json:"alg"`
		Critical  json.RawMessage `json:"crit"`
	}
	if err := decode(parts[0], &header); err != nil {
		return "", err
	}
	if header.Algorithm != "HS256" || header.Critical != nil { // RFC 7515: what is critical must be understood
		return "", fmt.Errorf("%w: expected HS256 and nothing critical", errToken)
	}
	var claims struct {
		Tenant string   `json:"tenant"`
		Until  *float64 `json:"exp"`
		From   float64  `json:"nbf"`
	}
	if err := decode(parts[1], &claims); err != nil {
		return "", err
	}
	seconds := float64(now.UnixMilli()) / 1000
	if claims.Tenant == "" || claims.Until == nil || seconds >= *claims.Until || seconds < claims.From {
		return "", fmt.Errorf("%w: no tenant, or not at this time", errToken)
	}
	return claims.Tenant, nil
}

func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errToken, err)
	}
	return nil
}
