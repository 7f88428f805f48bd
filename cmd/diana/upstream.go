// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/config"
)

// upstreamFlags are the flags of serve for the servers that it sends requests to.
type upstreamFlags struct {
	Upstream []*url.URL `sep:"none" placeholder:"URL" help:"Server to send requests to: http://HOST, https://HOST, or h2c://HOST for HTTP/2 without TLS. Repeatable: the gateway uses several in turn. Without one the gateway answers itself."`
	Host     string     `enum:"upstream,keep" default:"upstream" placeholder:"upstream|keep" help:"Host that the upstream gets: its own of --upstream, or that of the client (${default})."`
}

// valid returns an error if an upstream cannot be one.
func (f *upstreamFlags) valid() error {
	for _, u := range f.Upstream {
		switch {
		case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != schemeH2C, u.Hostname() == "":
			return fmt.Errorf("--upstream: %q, expected http://HOST, https://HOST or h2c://HOST", asWritten(u))
		case !validPort(u.Port()):
			return fmt.Errorf("--upstream: %q, expected a port of 1 to 65535", u)
		case u.User != nil:
			return errors.New("--upstream: a user name is not supported")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return fmt.Errorf("--upstream: %q has a query or a fragment, expected neither", u)
		case strings.Trim(u.EscapedPath(), "/") != strings.Trim(f.Upstream[0].EscapedPath(), "/"):
			return fmt.Errorf("--upstream: %q, expected the path of %q, because each gets the same requests", u, f.Upstream[0])
		}
	}
	for i, u := range f.Upstream {
		for _, other := range f.Upstream[:i] {
			if *u == *other {
				return fmt.Errorf("--upstream: %q is there twice, expected each server once", u)
			}
		}
	}
	return nil
}

// asWritten returns the text of a URL, also of one without a host.
func asWritten(u *url.URL) string {
	if text := u.String(); text != u.Scheme+":" {
		return text
	}
	return u.Scheme + "://"
}

// validPort reports whether a client can connect to a port of a URL, which may have none.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// leadsTo reports whether an upstream is what listens at an address, so that requests would never end.
func leadsTo(u *url.URL, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	to := u.Port()
	switch {
	case to == "" && u.Scheme == "https":
		to = "443"
	case to == "":
		to = "80"
	}
	if port != to {
		return false
	}
	at, _ := netip.ParseAddr(host)
	upstream, _ := netip.ParseAddr(u.Hostname())
	local := upstream.IsLoopback() || u.Hostname() == "localhost"
	switch {
	case host == "", at.IsValid() && at.IsUnspecified():
		return local || upstream.IsValid() && upstream.IsUnspecified()
	case at.IsLoopback() && u.Hostname() == "localhost":
		return true
	}
	return host == u.Hostname()
}

// proxy returns the handler that sends requests to the upstreams, and the pool of several. The pool is nil
// for one upstream. Both are nil if there is none.
func (f *upstreamFlags) proxy(t timeouts, active func() *config.Config, logger *slog.Logger) (http.Handler, *pool) {
	switch len(f.Upstream) {
	case 0:
		return nil, nil
	case 1:
		transport, to := transportTo(f.Upstream[0], t)
		return newProxy(to, f.Host == "keep", transport, t.Upstream, active, logger), nil
	}
	p := newPool(f.Upstream, t, logger)
	return newProxy(p.members[0].to, f.Host == "keep", p, t.Upstream, active, logger), p
}
