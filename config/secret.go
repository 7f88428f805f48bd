// SPDX-License-Identifier: MIT

package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"unicode"
)

// longestSecret bounds what a secret may be, in bytes: tokens can have kilobytes.
const longestSecret = 64 << 10

// Secret is a password or a token, or says where one is to be found. No way of printing,
// logging or encoding it shows a secret that was written out. The zero value is none.
//
// It can be compared by reflect.DeepEqual, and not by ==.
type Secret struct {
	// A pointer, as package fmt does not ask the methods of what is in an unexported
	// field: it shows the address then.
	text *string
}

const (
	fromEnv  = "env:"
	fromFile = "file:"
)

// ParseSecret reads what a configuration says of a secret: env:NAME for a variable of
// the environment, file:PATH for a file, or the secret itself. One that begins with
// env: or file: has to stand in a file. The error does not show the text.
func ParseSecret(text string) (Secret, error) {
	name, env := strings.CutPrefix(text, fromEnv)
	path, file := strings.CutPrefix(text, fromFile)
	switch {
	case text == "":
		return Secret{}, errors.New("expected text, found an empty one")
	case len(text) > longestSecret:
		return Secret{}, fmt.Errorf("expected at most %d bytes, found %d", longestSecret, len(text))
	case env && !isVariable(name):
		return Secret{}, errors.New("expected env:NAME, a name of letters, digits and _")
	case file && (path == "" || strings.ContainsAny(path, "\n\x00")):
		return Secret{}, errors.New("expected file:PATH, the path of a file")
	}
	return Secret{&text}, nil
}

func isVariable(name string) bool {
	letters := strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
	return letters != name && strings.Trim(letters, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == ""
}

// IsZero reports whether there is none.
func (s Secret) IsZero() bool { return s.text == nil }

// Value returns the secret. It reads the environment or the file anew each time, so
// that whoever asks again gets a secret that has been changed. Of a file the line end
// at its end does not count. The error names the variable or file, and shows nothing of
// what is in it. The zero value has an empty one.
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

// String returns where the secret is to be found, "(hidden)" if it was written out, or
// nothing if there is none.
func (s Secret) String() string {
	switch {
	case s.text == nil:
		return ""
	case strings.HasPrefix(*s.text, fromEnv), strings.HasPrefix(*s.text, fromFile):
		return *s.text
	}
	return "(hidden)"
}

// GoString is String for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// LogValue implements slog.LogValuer by String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler by String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// asked returns what asks for a secret anew each time. Its errors begin with key.
func (s Secret) asked(key string) func() (string, error) {
	return func() (string, error) {
		text, err := s.Value()
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		return text, nil
	}
}

// Credentials returns what asks for a password anew each time, and tells whose it is; nil if
// there is no password. It has asked once. Errors begin with key.
func Credentials(key, username string, password Secret) (func() (string, string, error), error) {
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

// credentials reads username and password.
func (m mapping) credentials() (username string, password Secret) {
	user := m.get("username")
	username, ok := user.text()
	if ok && strings.ContainsFunc(username, unicode.IsSpace) {
		user.expected("a name without spaces")
	}
	return username, m.get("password").secret()
}

// secret reads a secret, or where it is. What was written is in no message.
func (v value) secret() Secret {
	v.hide = true
	text, ok := v.text()
	if !ok {
		return Secret{}
	}
	s, err := ParseSecret(text)
	if err != nil {
		v.fail("%s: %v", v.key, err)
	}
	return s
}

// readFile returns the contents of a file, but no more than its first bytes.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
