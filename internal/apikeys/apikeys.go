// SPDX-License-Identifier: MIT

// Package apikeys has the API keys of a file: whose they are, and until when. The file has a checksum of each key,
// so nobody can learn a key from it. Package credentials finds the key in a request.
package apikeys

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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
	"unicode"

	"github.com/diana-limiter/diana/rule"
)

// The bounds of a file.
const (
	mostBytes = 64 << 20
	mostText  = 256 // bytes of an account and of a class
	prefix    = "sha256:"
)

// Line is what a line of the file says about a key. The line is
//
//	sha256:HEX ACCOUNT [CLASS] [until=DATE] [disabled]
type Line struct {
	Sum            [sha256.Size]byte
	Account, Class string
	Until          time.Time // the first moment at which the key is not valid; zero: never
	Disabled       bool
}

// New returns a new key, and its line.
func New(account, class string, until string) (key string, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	key = "dk_" + base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(key))
	words := []string{prefix + hex.EncodeToString(sum[:]), account}
	if class != "" {
		words = append(words, class)
	}
	if until != "" {
		words = append(words, "until="+until)
	}
	line = strings.Join(words, " ")
	l, err := parseLine(line)
	if err == nil && (l.Account != account || l.Class != class) {
		err = errors.New("expected an account and a class without spaces, other than disabled and until=")
	}
	return key, line, err
}

// parse returns the keys of a file's text.
func parse(text []byte) (map[[sha256.Size]byte]Line, error) {
	keys, places := map[[sha256.Size]byte]Line{}, map[[sha256.Size]byte]int{}
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		line := strings.TrimSpace(string(raw))
		if line == "" || line[0] == '#' {
			continue
		}
		l, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if first := places[l.Sum]; first > 0 {
			return nil, fmt.Errorf("line %d: the key of line %d is there again, expected each once", number, first)
		}
		keys[l.Sum], places[l.Sum] = l, number
	}
	return keys, nil
}

// parseLine reads a line. The error shows nothing of it, because somebody may have written the key itself.
func parseLine(line string) (l Line, err error) {
	words := strings.Fields(line)
	sum, ok := strings.CutPrefix(words[0], prefix)
	decoded, bad := hex.DecodeString(sum)
	if !ok || bad != nil || len(decoded) != len(l.Sum) {
		return l, errors.New("expected sha256: and 64 hexadecimal digits in front, as diana key new prints them")
	}
	copy(l.Sum[:], decoded)
	if len(words) < 2 {
		return l, errors.New("expected an account behind the checksum")
	}
	l.Account = words[1]
	for i, word := range words[2:] {
		date, until := strings.CutPrefix(word, "until=")
		switch {
		case until && l.Until.IsZero():
			if l.Until, err = parseUntil(date); err != nil {
				return l, err
			}
		case word == "disabled" && !l.Disabled:
			l.Disabled = true
		case i == 0 && !until && word != "disabled":
			l.Class = word
		default:
			return l, errors.New("expected an account, a class, until=DATE and disabled in this order, each at most once")
		}
	}
	for _, text := range []string{l.Account, l.Class} {
		if len(text) > mostText || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
			return l, fmt.Errorf("expected an account and a class of at most %d bytes that can be printed", mostText)
		}
	}
	return l, nil
}

// parseUntil reads the last day of a key in UTC, or the moment at which it ends.
func parseUntil(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, errors.New("until=: expected a day such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z")
	}
	return at, nil
}

// File follows a file of keys. It looks at the file when it is asked, at most once a second, so it has no goroutine.
type File struct {
	path   string
	logger *slog.Logger
	keys   atomic.Pointer[map[[sha256.Size]byte]Line]

	looked atomic.Int64 // when it looked last, in microseconds since 1970
	mu     sync.Mutex   // of the rest
	seen   [sha256.Size]byte
	info   os.FileInfo // of the file as it was read last; nil: it could not be read
	now    func() time.Time
}

// Open returns the keys of a file, which must be good.
func Open(path string, logger *slog.Logger) (*File, error) {
	f := &File{path: path, logger: logger, now: time.Now}
	if err := f.read(); err != nil {
		return nil, err
	}
	f.looked.Store(f.now().UnixMicro())
	return f, nil
}

// Verify returns what the file says about a key.
func (f *File) Verify(_ context.Context, key string) (rule.Proof, error) {
	now := f.now()
	f.look(now)
	l, ok := (*f.keys.Load())[sha256.Sum256([]byte(key))]
	if !ok || l.Disabled || !l.Until.IsZero() && !now.Before(l.Until) {
		return nil, &rule.CredentialError{Status: http.StatusUnauthorized, Reason: "the API key is not valid"}
	}
	return func(name string) string {
		switch name {
		case "account":
			return l.Account
		case "class":
			return l.Class
		}
		return ""
	}, nil
}

// look reads the file if it may have changed. While the file is broken, the keys that were read last stay valid.
func (f *File) look(now time.Time) {
	last := f.looked.Load()
	if at := now.UnixMicro(); at-last < time.Second.Microseconds() && at >= last || !f.looked.CompareAndSwap(last, at) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	// A file that was written within the last two seconds can change again at the same moment of its clock.
	if err == nil && f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() &&
		info.ModTime().Equal(f.info.ModTime()) && now.Sub(info.ModTime()) > 2*time.Second {
		return
	}
	before := f.seen
	if err := f.read(); err != nil {
		if f.seen != before {
			f.logger.Error("API keys not changed", "error", err)
		}
		return
	}
	if f.seen != before {
		f.logger.Info("API keys changed", "file", f.path, "keys", len(*f.keys.Load()))
	}
}

// read reads the file. An error changes no keys.
func (f *File) read() error {
	text, info, err := f.text()
	if err != nil {
		f.seen, f.info = sha256.Sum256([]byte(err.Error())), nil
		return err
	}
	sum := sha256.Sum256(text)
	f.info = info
	if f.keys.Load() != nil && sum == f.seen {
		return nil
	}
	f.seen = sum
	keys, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.keys.Store(&keys)
	return nil
}

func (f *File) text() ([]byte, os.FileInfo, error) {
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() { // a pipe would block
		err = fmt.Errorf("%s is no regular file", f.path)
	}
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s: expected at most %d bytes", f.path, mostBytes)
	}
	return text, info, err
}

// Kind returns the actors key:account and key:class.
func Kind() rule.ActorKind {
	return rule.ActorKind{Kind: "key", Named: true, Proved: true, Check: func(name string) error {
		if name != "account" && name != "class" {
			return errors.New("expected key:account or key:class")
		}
		return nil
	}}
}
