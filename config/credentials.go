// SPDX-License-Identifier: MIT

package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/apikeys"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// Credentials say by what clients prove who they are. The zero value means that they do not.
type Credentials struct {
	Required bool     // a request without a valid token or API key is rejected; a configuration says required: any
	Keys     *Keys    // nil: there are no API keys
	JWT      []Issuer // of tokens

	// UpstreamHeaders are the fields that the next handler gets with a request that has a valid credential, by
	// name. Those that a client sends itself are removed.
	UpstreamHeaders map[string]Secret
}

// Keys say where API keys are.
type Keys struct {
	File    string
	Headers []string // fields that can have one; default Authorization, X-Api-Key, Api-Key and X-Goog-Api-Key
}

// Issuer says which JWTs of one issuer are valid.
type Issuer struct {
	Keys       string   // where its JWKS is: an http or https URL, or file: and a path
	Issuer     string   // the claim iss
	Audience   string   // the claim aud, or one of it
	Algorithms []string // that the issuer uses; default RS256 and ES256

	Stale time.Duration // how long the last good keys are valid while the URL fails; 1m to 744h, default 24h
}

// Verifier verifies the credentials of one kind. Programs add their own to a [Vocabulary], with an
// actor of the same kind that is Proved.
type Verifier struct {
	Kind string // of the credentials and of the actors: "key" or "jwt"

	// Open returns the function that verifies a credential, which several goroutines call. Its error is a
	// *rule.CredentialError; any other one means that the credential is not valid. The function must be nil if
	// c says nothing about the kind. Open does no network I/O.
	Open func(c *Credentials, logger *slog.Logger) (func(ctx context.Context, token string) (rule.Proof, error), error)
}

// keyVerifier verifies API keys by the file of a configuration.
func keyVerifier() Verifier {
	return Verifier{Kind: "key", Open: func(c *Credentials, logger *slog.Logger) (func(context.Context, string) (rule.Proof, error), error) {
		if c.Keys == nil {
			return nil, nil
		}
		f, err := apikeys.Open(c.Keys.File, logger)
		if err != nil {
			return nil, fmt.Errorf("identity.keys: %w", err)
		}
		return f.Verify, nil
	}}
}

// has reports whether the credentials can have a kind.
func (c *Credentials) has(kind string) bool {
	return kind == "key" && c.Keys != nil || kind == "jwt" && len(c.JWT) > 0
}

// any reports whether there are credentials.
func (c *Credentials) any() bool { return c.Keys != nil || len(c.JWT) > 0 }

// readCredentialSettings reads what identity says about credentials.
func readCredentialSettings(m mapping) (c Credentials) {
	c.Required = m.get("required").choice() == 1
	c.Keys = readKeys(m.get("keys"))
	c.JWT = readIssuers(m.get("jwt"))
	for key, val := range m.get("upstream_headers").entries() {
		name, ok := key.text()
		switch {
		case !ok:
			continue
		case !httptext.IsToken(name):
			key.fail("upstream_headers: expected the name of a header, found %q", name)
			continue
		case c.UpstreamHeaders[http.CanonicalHeaderKey(name)].text != nil:
			key.fail("upstream_headers: expected each once, found %s again", name)
		case slices.Contains(hopHeaders, http.CanonicalHeaderKey(name)):
			key.fail("upstream_headers: expected a header for the upstream, found %s, which is for a connection", name)
		}
		val.key = name
		if c.UpstreamHeaders == nil {
			c.UpstreamHeaders = map[string]Secret{}
		}
		c.UpstreamHeaders[http.CanonicalHeaderKey(name)] = readSecret(val)
	}
	if !c.any() {
		for _, key := range []string{"required", "upstream_headers"} {
			if m.get(key).given() && !m.get(key).is("none") {
				m.failKey(key, "identity has %s but no credentials, expected keys or jwt too", key)
			}
		}
	}
	return c
}

// hopHeaders cannot be set for an upstream.
var hopHeaders = []string{"Connection", "Host", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection"}

// verifiable reports an error if the program cannot verify credentials of a kind.
func (v value) verifiable(kind, called string) {
	if !slices.ContainsFunc(v.r.words.Verifiers, func(k Verifier) bool { return k.Kind == kind }) {
		v.fail("%s: this program cannot verify %s, expected none", v.key, called)
	}
}

func readIssuers(v value) (list []Issuer) {
	if !v.given() {
		return nil
	}
	v.verifiable("jwt", "tokens")
	if v.node.Kind != yaml.SequenceNode {
		v.form = issuerKeys
		return []Issuer{readIssuer(v)}
	}
	v.form = issuersForm.listForm
	for item := range v.list {
		list = append(list, readIssuer(item))
	}
	return list
}

func readIssuer(v value) Issuer {
	m := v.mapping()
	i := Issuer{Stale: m.get("stale").duration(), Algorithms: slices.Clone(algorithmsForm.otherwise)}
	i.Keys, _ = m.get("keys").text()
	i.Issuer, _ = m.get("issuer").text()
	i.Audience, _ = m.get("audience").text()
	u, err := url.Parse(i.Keys)
	path, file := strings.CutPrefix(i.Keys, fromFile)
	switch {
	case i.Keys == "":
	case file && path != "":
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "":
		m.get("keys").fail("keys: expected https://HOST/PATH, or file: and the path of a file")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		v.r.warn(m.get("keys").node, "keys: whoever is between can replace what http fetches, so it proves nothing; expected https")
	}
	list := m.get("algorithms")
	if list.given() {
		i.Algorithms = nil
	}
	for item := range list.list {
		name, ok := item.text()
		switch {
		case !ok:
		case !slices.Contains(tokenAlgorithms, name):
			item.expected(yamltext.Join(tokenAlgorithms, "or"), tokenAlgorithms...)
		case slices.Contains(i.Algorithms, name):
			item.fail("algorithms: expected each once, found %s again", name)
		case strings.HasPrefix(name, "HS") && !file:
			item.fail("algorithms: %s has a secret key, which cannot be behind a URL, expected keys: file:PATH", name)
		}
		i.Algorithms = append(i.Algorithms, name)
	}
	return i
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// tokenAlgorithms are the algorithms that can sign a token.
var tokenAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"}

func readKeys(v value) *Keys {
	if !v.given() {
		return nil
	}
	v.verifiable("key", "API keys")
	m := v.mapping()
	k := &Keys{Headers: slices.Clone(keyHeadersForm.otherwise)}
	k.File, _ = m.get("file").text()
	list := m.get("headers")
	if list.given() {
		k.Headers = nil
	}
	for item := range list.list {
		name, ok := item.text()
		if !ok {
			continue
		}
		name = http.CanonicalHeaderKey(name)
		switch {
		case !httptext.IsToken(name):
			item.fail("headers: expected the name of a header, found %q", name)
		case slices.Contains(k.Headers, name):
			item.fail("headers: expected each once, found %s again", name)
		}
		k.Headers = append(k.Headers, name)
	}
	return k
}

// checkCredentials returns an error for credentials that a program has built.
func (c *Credentials) check() error {
	var errs []error
	if c.Keys != nil && (c.Keys.File == "" || len(c.Keys.Headers) == 0) {
		errs = append(errs, errors.New("identity.keys has no file or no headers, expected both"))
	}
	for _, i := range c.JWT {
		if i.Keys == "" || i.Issuer == "" || i.Audience == "" || len(i.Algorithms) == 0 || i.Stale <= 0 {
			errs = append(errs, errors.New("identity.jwt lacks keys, an issuer, an audience, algorithms or stale, expected all of them"))
		}
	}
	if !c.any() && (c.Required || len(c.UpstreamHeaders) > 0) {
		errs = append(errs, errors.New("identity has Required or UpstreamHeaders but no credentials, expected some"))
	}
	return errors.Join(errs...)
}

// proved returns the first of some actors that a credential of c proves, or "".
func (c *Config) proved(actors []rule.Actor) string {
	for _, a := range actors {
		sources := []rule.Actor{a}
		switch a.Kind {
		case "account":
			sources = c.Identity.Account
		case "device":
			sources = c.Identity.Device
		}
		for _, s := range sources {
			if c.Credentials.has(s.Kind) {
				return s.String()
			}
		}
	}
	return ""
}

// anonymous is why a rule with a cost cannot count by a credential that a client may leave out.
const anonymous = "cost: the rule counts by %s, which a client can leave out to count by its address, expected required: any in identity"

// checkProvedCosts returns an error if a client can leave out the credential by which a rule counts what
// responses cost.
func (c *Config) checkProvedCosts() error {
	if c.Credentials.Required || !c.Credentials.any() {
		return nil
	}
	var errs []error
	for i := range c.Limits {
		for j := range c.Limits[i].Rules {
			r := &c.Limits[i].Rules[j]
			if by := c.proved(r.Actor); by != "" && (r.Cost.Answer != "" || r.Cost.Header != "" || r.Cost.N > 1) {
				errs = append(errs, fmt.Errorf("url %q: rule %q: "+anonymous, c.Limits[i].URL, r.Name, by))
			}
		}
	}
	return errors.Join(errs...)
}
