// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
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
