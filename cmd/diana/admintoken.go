// SPDX-License-Identifier: MIT

package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/config"
)

// adminToken is the secret of the administrators' listener. The zero value has none.
//
// The file or the variable is read at each use. So a new token takes effect when its file is
// replaced, without a reload, and the program keeps no copy of the secret.
type adminToken struct{ secret config.Secret }

// UnmarshalText reads the value of --admin-token. The token itself is not accepted, because the
// list of processes shows command lines to every user. The error does not show the text.
func (t *adminToken) UnmarshalText(text []byte) (err error) {
	if s := string(text); !strings.HasPrefix(s, "file:") && !strings.HasPrefix(s, "env:") {
		return errors.New("expected file:PATH or env:NAME, a place that holds the token")
	}
	err = t.secret.UnmarshalText(text)
	return err
}

// isSet reports whether there is a token.
func (t adminToken) isSet() bool { return !t.secret.IsZero() }

// value reads the token. It is not empty, and can be sent in a header.
func (t adminToken) value() (string, error) {
	text, err := t.secret.Value()
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		err = fmt.Errorf("%s: expected visible ASCII characters without spaces", t.secret)
	}
	if err != nil {
		return "", fmt.Errorf("--admin-token: %w", err)
	}
	return text, nil
}

// check returns an error if there is a token that cannot be used, and logs a warning if every user
// of the machine can read it.
func (t adminToken) check(logger *slog.Logger) error {
	if !t.isSet() {
		return nil
	}
	if _, err := t.value(); err != nil {
		return err
	}
	if t.readableByOthers() {
		logger.Warn("every user of this machine can read the admin token", "token", t.secret)
	}
	return nil
}

// readableByOthers reports whether every user of the machine can read the token's file.
func (t adminToken) readableByOthers() bool {
	path, ok := strings.CutPrefix(t.secret.String(), "file:")
	if !ok {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

// forReading returns a handler that answers only requests with the token, because the pages of next
// can show identities. Without a token it answers all. It also answers requests that only read and
// come from this machine, and those for paths of forAnyHost, which show no identity.
func (t adminToken) forReading(next http.Handler, logger *slog.Logger) http.Handler {
	if !t.isSet() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if reads && (slices.Contains(forAnyHost, r.URL.Path) || fromLoopback(r)) || t.admits(w, r, logger) {
			next.ServeHTTP(w, r)
		}
	})
}

// forChanging returns a handler that answers only requests with the token. Without a token it answers
// none.
func (t adminToken) forChanging(next http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.admits(w, r, logger) {
			next.ServeHTTP(w, r)
		}
	})
}

// admits reports whether a request has the token. If not it answers the request.
func (t adminToken) admits(w http.ResponseWriter, r *http.Request, logger *slog.Logger) bool {
	detail := "Send the token of --admin-token in the field Authorization: Bearer TOKEN."
	if t.isSet() {
		token, err := t.value()
		if err != nil {
			logger.Error("admin token", "error", err)
			adminProblem(w, http.StatusInternalServerError, "The gateway cannot read its token. Its log says why.")
			return false
		}
		if sameSecret(bearer(r), token) {
			return true
		}
	} else {
		detail = "This listener changes nothing, because diana serve was started without --admin-token."
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="diana"`)
	adminProblem(w, http.StatusUnauthorized, detail)
	return false
}

// sameSecret compares in a time that depends on neither text.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearer returns the token that a request has, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// fromLoopback reports whether a request comes from this machine. A proxy on this machine makes
// every request one.
func fromLoopback(r *http.Request) bool {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.Addr().Unmap().IsLoopback()
}
