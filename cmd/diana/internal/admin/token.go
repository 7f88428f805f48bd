// SPDX-License-Identifier: MIT

package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/diana-limiter/diana/config"
)

// Token is the secret of the administrators' listener. The zero value has none.
//
// The file or the variable is read at each use. So a new token takes effect when its file is
// replaced, without a reload, and the program keeps no copy of the secret.
type Token struct{ secret config.Secret }

// UnmarshalText reads the value of --admin-token. The token itself is not accepted, because the
// list of processes shows command lines to every user. The error does not show the text.
func (t *Token) UnmarshalText(text []byte) (err error) {
	if s := string(text); !strings.HasPrefix(s, "file:") && !strings.HasPrefix(s, "env:") {
		return errors.New("expected file:PATH or env:NAME, a place that holds the token")
	}
	err = t.secret.UnmarshalText(text)
	return err
}

// IsSet reports whether there is a token.
func (t Token) IsSet() bool { return !t.secret.IsZero() }

// shortestToken is how many characters a token has at least, so that nobody can guess it.
const shortestToken = 20

// Value reads the token. It has at least shortestToken characters, and can be sent in a header.
func (t Token) Value() (string, error) {
	text, err := t.secret.Value()
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		err = fmt.Errorf("%s: expected visible ASCII characters without spaces", t.secret)
	}
	if err == nil && t.IsSet() && len(text) < shortestToken {
		err = fmt.Errorf("%s: found %d characters, expected at least %d, such as those of \"openssl rand -hex 20\"", t.secret, len(text), shortestToken)
	}
	if err != nil {
		return "", fmt.Errorf("--admin-token: %w", err)
	}
	return text, nil
}

// Check returns an error if there is a token that cannot be used, and logs a warning if every user
// of the machine can read it.
func (t Token) Check(logger *slog.Logger) error {
	if !t.IsSet() {
		return nil
	}
	if _, err := t.Value(); err != nil {
		return err
	}
	if t.readableByOthers() {
		logger.Warn("every user of this machine can read the admin token", "token", t.secret)
	}
	return nil
}

// readableByOthers reports whether every user of the machine can read the token's file.
func (t Token) readableByOthers() bool {
	path, ok := strings.CutPrefix(t.secret.String(), "file:")
	if !ok {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
