// SPDX-License-Identifier: MIT

package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/source"
)

// Remote says where the remote configuration is, and how Diana authenticates to its server.
type Remote struct {
	URL      string // for one of the vocabulary's Sources; can contain a user and a password, see Where
	Username string // if empty, none or the one in URL
	Password Secret // of Username; empty if URL has one
	Token    Secret // for servers that use tokens
	TLS      *TLS   // nil means none, unless the scheme of URL asks for TLS
	Snapshot string // file for the last good copy; empty means none
}

// Where returns the URL in a form that can be shown: without user and password, and without the
// query, which can hold signatures and tokens.
func (r *Remote) Where() string { return publicURL(r.URL) }

// Where returns the URL in a form that can be shown, see [Remote.Where].
func (r *Redis) Where() string { return publicURL(r.URL) }

func publicURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	u.User = nil
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.String()
}

// Options returns the options for opening the source. It reads all secrets and certificates once, so
// that errors appear early. The source reads them again whenever it needs them. The error names the
// keys, files and variables that are wrong.
func (r *Remote) Options() (source.Options, error) {
	u, err := url.Parse(r.URL)
	if err != nil { // err shows the URL
		return source.Options{}, errors.New("remote.url: expected a URL")
	}
	o := source.Options{URL: u}
	var passwordErr, tokenErr, tlsErr error
	if user := u.User; user != nil {
		name := user.Username()
		password, _ := user.Password()
		o.Credentials = func() (string, string, error) { return name, password, nil }
		u.User = nil
	} else {
		o.Credentials, passwordErr = credentials("remote.password", r.Username, r.Password)
	}
	if !r.Token.IsZero() {
		o.Token = r.Token.asked("remote.token")
		_, tokenErr = o.Token()
	}
	if o.TLS, tlsErr = r.TLS.Load(); tlsErr != nil {
		tlsErr = fmt.Errorf("remote.tls: %w", tlsErr)
	}
	if err := errors.Join(passwordErr, tokenErr, tlsErr); err != nil {
		return source.Options{}, err
	}
	return o, nil
}

// readRemote reads where the remote configuration is.
func readRemote(v value) *Remote {
	if !v.given() {
		return nil
	}
	if len(v.r.words.Sources) == 0 {
		v.fail("remote: this program has no sources of configurations, expected none to be asked for")
		return nil
	}
	m := v.mapping()
	text, u, kind := readRemoteURL(m.get("url"))
	if u != nil {
		checkURL(m, u, isPlain(kind, u.Scheme))
	}
	username, password := readCredentials(m)
	c := &Remote{
		URL:      text,
		Username: username,
		Password: password,
		Token:    readSecret(m.get("token")),
		TLS:      readTLS(m.get("tls")),
	}
	c.Snapshot, _ = m.get("snapshot").text()
	if v.r.mistakes == 0 && kind.Open != nil {
		if err := c.suits(kind, *u); err != nil {
			v.fail("remote: %v", err)
		}
	}
	return c
}

// suits returns an error if a kind of source cannot work with these options. It reads no secret and no
// file.
func (r *Remote) suits(kind source.Kind, u url.URL) error {
	var o source.Options
	if u.User != nil || !r.Password.IsZero() {
		o.Credentials = func() (string, string, error) { return "", "", nil }
	}
	if !r.Token.IsZero() {
		o.Token = func() (string, error) { return "", nil }
	}
	if r.TLS != nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	u.User = nil
	o.URL = &u
	s, err := kind.Open(o)
	if err == nil {
		_ = s.Close() // nobody used it
	}
	return err
}

// isPlain reports whether a scheme of a kind means no TLS because the kind has another scheme for TLS.
// If a kind has only one scheme, the key tls decides.
func isPlain(k source.Kind, scheme string) bool { return slices.Contains(k.Schemes, scheme+"s") }

func readRemoteURL(v value) (text string, u *url.URL, kind source.Kind) {
	text, u = readURL(v)
	if u == nil {
		return "", nil, kind
	}
	kind, ok := v.r.words.source(u.Scheme)
	shown := *u
	shown.User = nil
	switch {
	case !ok:
		var schemes []string
		for _, k := range v.r.words.Sources {
			schemes = append(schemes, k.Schemes...)
		}
		v.fail("%s: expected one of %s before ://%s", v.key, yamltext.Join(schemes, "and"), yamltext.DidYouMean(u.Scheme, schemes))
	case kind.Check != nil && !kind.Check(&shown):
		v.fail("%s: expected %s", v.key, strings.Replace(kind.Form, kind.Schemes[0]+"://", u.Scheme+"://", 1))
	}
	return text, u, kind
}

// WithRemote returns the configuration that is active with a remote configuration: c, but with the
// limits, Source and Version of document. document is a result of [Vocabulary.ParseRemote]. WithRemote
// changes neither c nor document.
func (c *Config) WithRemote(document *Config) *Config {
	whole := *c
	whole.Source, whole.Version, whole.Limits = document.Source, document.Version, document.Limits
	whole.Warnings = slices.Concat(c.Warnings, document.Warnings).First()
	whole.ends = document.ends
	whole.withoutRedis = nil // Warnings has them if they matter
	if c.Redis == nil {
		whole.Warnings = slices.Concat(c.Warnings, slices.Concat(document.Warnings, document.withoutRedis).Sorted()).First()
	}
	return &whole
}
