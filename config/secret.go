// SPDX-License-Identifier: MIT

package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"unicode"
)

// longestSecret is the longest secret in bytes. Tokens can have kilobytes.
const longestSecret = 64 << 10

// Secret is a password or a token, or the place of one. Printing, logging and encoding never show a
// secret that was written out. The zero value means no secret.
//
// Compare secrets by reflect.DeepEqual, not by ==.
type Secret struct {
	// A pointer, because package fmt does not call the methods of a value in an unexported field. It
	// prints the address of a pointer there.
	text *string
}

const (
	fromEnv  = "env:"
	fromFile = "file:"
)

// UnmarshalText reads a secret of a configuration: env:NAME for a variable of the environment, file:PATH
// for a file, or the secret itself. A secret that begins with env: or file: must be in a file. The
// error does not show the text.
func (s *Secret) UnmarshalText(data []byte) error {
	text := string(data)
	name, env := strings.CutPrefix(text, fromEnv)
	path, file := strings.CutPrefix(text, fromFile)
	switch {
	case text == "":
		return errors.New("expected text, found an empty one")
	case len(text) > longestSecret:
		return fmt.Errorf("expected at most %d bytes, found %d", longestSecret, len(text))
	case env && !isVariable(name):
		return errors.New("expected env:NAME, a name of letters, digits and _")
	case file && (path == "" || strings.ContainsAny(path, "\n\x00")):
		return errors.New("expected file:PATH, the path of a file")
	}
	s.text = &text
	return nil
}

func isVariable(name string) bool {
	letters := strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
	return letters != name && strings.Trim(letters, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == ""
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Value returns the secret. It reads the environment or the file each time, so it returns a changed
// secret. It drops the end of the last line of a file. The error names the variable or the file, and
// shows nothing of its content. Value of the zero Secret is empty.
func (s Secret) Value() (string, error) {
	if s.text == nil {
		return "", nil
	}
	if name, ok := strings.CutPrefix(*s.text, fromEnv); ok {
		value := os.Getenv(name)
		if value == "" {
			return "", fmt.Errorf("the environment variable %s is not set, or empty", name)
		}
		return value, nil
	}
	path, ok := strings.CutPrefix(*s.text, fromFile)
	if !ok {
		return *s.text, nil
	}
	data, err := readFile(path, longestSecret+1)
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(data), "\r\n")
	switch {
	case len(data) > longestSecret:
		return "", fmt.Errorf("%s: expected at most %d bytes", path, longestSecret)
	case value == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsAny(value, "\r\n"):
		return "", fmt.Errorf("%s has more than one line", path)
	}
	return value, nil
}

// String returns the place of the secret, "(hidden)" if the secret was written out, or "" for the zero
// value.
func (s Secret) String() string {
	switch {
	case s.text == nil:
		return ""
	case strings.HasPrefix(*s.text, fromEnv), strings.HasPrefix(*s.text, fromFile):
		return *s.text
	}
	return "(hidden)"
}

// isWrittenOut reports whether the configuration has the secret itself.
func (s Secret) isWrittenOut() bool { return s.text != nil && s.String() != *s.text }

// WritesSecret reports whether the text of the configuration has a secret itself, and not only its place: a
// password, a token, or a URL with a user or a query. Such a text must not be shown.
func (c *Config) WritesSecret() bool {
	inURL := func(text string) bool {
		u, err := url.Parse(text)
		return err != nil || u.User != nil || u.RawQuery != ""
	}
	if r := c.Redis; r != nil && (inURL(r.URL) || r.Password.isWrittenOut() || r.Sentinel != nil && r.Sentinel.Password.isWrittenOut()) {
		return true
	}
	for _, s := range c.Credentials.UpstreamHeaders {
		if s.isWrittenOut() {
			return true
		}
	}
	r := c.Remote
	return r != nil && (inURL(r.URL) || r.Password.isWrittenOut() || r.Token.isWrittenOut())
}

// GoString is String for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// LogValue implements slog.LogValuer by String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler by String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// asked returns a function that reads the secret each time. Its errors begin with key.
func (s Secret) asked(key string) func() (string, error) {
	return func() (string, error) {
		text, err := s.Value()
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		return text, nil
	}
}

// credentials returns a function that returns username and reads the password each time. It returns
// nil if there is no password. credentials calls the function once to find errors, which begin with
// key.
func credentials(key, username string, password Secret) (func() (string, string, error), error) {
	if password.IsZero() {
		return nil, nil
	}
	asked := password.asked(key)
	ask := func() (string, string, error) {
		text, err := asked()
		return username, text, err
	}
	_, _, err := ask()
	return ask, err
}

// Credentials returns a function that returns Username and reads the password each time, or nil if
// there is no password. It reads the password once, and returns the error of that.
func (r *Redis) Credentials() (func() (username, password string, err error), error) {
	return credentials("redis.password", r.Username, r.Password)
}

// Credentials returns the same for the Sentinels themselves as [Redis.Credentials] for Redis.
func (s *Sentinel) Credentials() (func() (username, password string, err error), error) {
	return credentials("redis.sentinel.password", s.Username, s.Password)
}

// readCredentials reads username and password.
func readCredentials(m mapping) (username string, password Secret) {
	user := m.get("username")
	username, ok := user.text()
	if ok && strings.ContainsFunc(username, unicode.IsSpace) {
		user.expected("a name without spaces")
	}
	return username, readSecret(m.get("password"))
}

// readSecret reads a secret or its place. No message shows the text.
func readSecret(v value) Secret {
	v.hide = true
	text, ok := v.text()
	if !ok {
		return Secret{}
	}
	var s Secret
	if err := s.UnmarshalText([]byte(text)); err != nil {
		v.fail("%s: %v", v.key, err)
	}
	return s
}

// readFile returns at most the first bytes of a file.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
