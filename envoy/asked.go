// SPDX-License-Identifier: MIT

package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/httptext"
)

// asked is the rule.Native of a request that Envoy asks about.
type asked struct {
	attributes  *auth.AttributeContext
	of          *auth.AttributeContext_HttpRequest
	path, query string
}

// Context has no actors, because no filter is in front of the limiter.
func (a *asked) Context() context.Context { return context.Background() }

// Field returns the lines of a field.
func (a *asked) Field(name string) (lines []string) {
	for key, value := range a.of.GetHeaders() {
		if len(key) == len(name) && strings.EqualFold(key, name) {
			lines = httptext.AppendLines(lines, name, value)
		}
	}
	for _, h := range a.of.GetHeaderMap().GetHeaders() { // in place of the above, if Envoy is set to send it
		if key := h.GetKey(); len(key) == len(name) && strings.EqualFold(key, name) {
			lines = append(lines, valueOf(h))
		}
	}
	return lines
}

// Host returns the authority.
func (a *asked) Host() string { return a.of.GetHost() }

// Query returns the query of the path.
func (a *asked) Query() string { return a.query }

// Peer returns the address of the client.
func (a *asked) Peer() string {
	at := a.attributes.GetSource().GetAddress().GetSocketAddress()
	if at == nil {
		return ""
	}
	return net.JoinHostPort(at.GetAddress(), strconv.FormatUint(uint64(at.GetPortValue()), 10))
}

// HTTP returns a copy of the request.
func (a *asked) HTTP() *http.Request {
	h := make(http.Header, len(a.of.GetHeaders()))
	for key, value := range a.of.GetHeaders() {
		if name := http.CanonicalHeaderKey(key); !strings.HasPrefix(key, ":") {
			h[name] = httptext.AppendLines(h[name], name, value)
		}
	}
	for _, line := range a.of.GetHeaderMap().GetHeaders() {
		if key := line.GetKey(); !strings.HasPrefix(key, ":") {
			h.Add(key, valueOf(line))
		}
	}
	r := unread(a.of.GetMethod(), a.of.GetHost(), a.path, a.query, h)
	r.RemoteAddr, r.TLS = a.Peer(), shown(a.attributes.GetSource().GetCertificate())
	return r
}

// valueOf returns the value of a line, which has one of two types.
func valueOf(line *core.HeaderValue) string {
	return cmp.Or(line.GetValue(), string(line.GetRawValue()))
}

// to returns a request for a target, without what it says of its client, and the query of the target.
func to(method, target string) (request diana.Request, query string) {
	path, short, query := httptext.Target(target)
	request = diana.Request{Method: method, Path: path}
	if short != path {
		request.OtherPaths = []string{short}
	}
	return request, query
}

// unread returns a request without a body.
func unread(method, host, path, query string, h http.Header) *http.Request {
	return &http.Request{Method: method, Host: host, Header: h, URL: &url.URL{Path: path, RawQuery: query}, Body: http.NoBody}
}

// shown returns the TLS connection of a client by the certificate that Envoy has verified, which is PEM in URL encoding,
// or nil if Envoy has sent none.
func shown(certificate string) *tls.ConnectionState {
	text, err := url.QueryUnescape(strings.ReplaceAll(certificate, "+", "%2B"))
	if err != nil {
		return nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	chain := []*x509.Certificate{leaf}
	return &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
}
