// SPDX-License-Identifier: MIT

package upstream

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
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
)

// Timeouts are how long the gateway waits for upstreams. Each is at least 1 ms.
type Timeouts struct {
	Upstream time.Duration `name:"upstream-timeout" default:"60s" placeholder:"TIME" help:"Longest time until the upstream begins to answer, counted from when it last took a part of the request (${default}). Then 504."`
	Dial     time.Duration `name:"dial-timeout" default:"5s" placeholder:"TIME" help:"Longest time until the upstream accepts a connection, and at most --upstream-timeout (${default}). Then 504."`
	TLS      time.Duration `name:"upstream-tls-timeout" default:"10s" placeholder:"TIME" help:"Longest time for the TLS handshake with the upstream, and at most --upstream-timeout (${default}). Then 504."`
	Unused   time.Duration `name:"upstream-idle-timeout" default:"60s" placeholder:"TIME" help:"Longest time that a connection to the upstream is kept without a request (${default})."`
}

// Valid returns an error that names a flag whose duration is too short.
func (t *Timeouts) Valid() error {
	return errors.Join(
		command.ValidTimeout("upstream", t.Upstream),
		command.ValidTimeout("dial", t.Dial),
		command.ValidTimeout("upstream-tls", t.TLS),
		command.ValidTimeout("upstream-idle", t.Unused),
	)
}

// Flags are the flags of serve for the servers that it sends requests to.
type Flags struct {
	URLs    []*url.URL `name:"upstream" sep:"none" placeholder:"URL" help:"Server to send requests to: http://HOST, https://HOST, or h2c://HOST for HTTP/2 without TLS. Repeatable: the gateway uses several in turn. Without one the gateway answers itself."`
	Upgrade []string   `sep:"none" placeholder:"NAME" help:"Protocol to which clients may change a connection by Upgrade, beside websocket: kafka for all its versions, or kafka/2. Repeatable."`
	Host    string     `enum:"upstream,keep" default:"upstream" placeholder:"upstream|keep" help:"Host that the upstream gets: its own of --upstream, or that of the client (${default})."`
}

// Valid returns an error if an upstream cannot be one.
func (f *Flags) Valid() error {
	for _, u := range f.URLs {
		switch {
		case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != SchemeH2C, u.Hostname() == "":
			return fmt.Errorf("--upstream: %q, expected http://HOST, https://HOST or h2c://HOST", asWritten(u))
		case !validPort(u.Port()):
			return fmt.Errorf("--upstream: %q, expected a port of 1 to 65535", u)
		case u.User != nil:
			return errors.New("--upstream: a user name is not supported")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return fmt.Errorf("--upstream: %q has a query or a fragment, expected neither", u)
		case strings.Trim(u.EscapedPath(), "/") != strings.Trim(f.URLs[0].EscapedPath(), "/"):
			return fmt.Errorf("--upstream: %q, expected the path of %q, because each gets the same requests", u, f.URLs[0])
		}
	}
	for _, name := range f.Upgrade {
		if err := validUpgrade(name); err != nil {
			return err
		}
	}
	for i, u := range f.URLs {
		for _, other := range f.URLs[:i] {
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

// LeadsTo reports whether an upstream is what listens at an address, so that requests would never end.
func LeadsTo(u *url.URL, address string) bool {
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

// Proxy returns the handler that sends requests to the upstreams, and the pool of several. The pool is nil
// for one upstream. Both are nil if there is none.
func (f *Flags) Proxy(t Timeouts, active func() *config.Config, upgrades *Upgrades, logger *slog.Logger) (http.Handler, *Pool) {
	switch len(f.URLs) {
	case 0:
		return nil, nil
	case 1:
		transport, to := transportTo(f.URLs[0], t)
		return NewProxy(to, f.Host == "keep", transport, t.Upstream, active, upgrades, logger), nil
	}
	p := NewPool(f.URLs, t, logger)
	return NewProxy(p.members[0].to, f.Host == "keep", p, t.Upstream, active, upgrades, logger), p
}
