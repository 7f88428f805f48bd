// SPDX-License-Identifier: MIT

package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// Upgrades are the protocols to which a client may change a connection. Another one could carry further requests
// that no rule evaluates. So the gateway ignores a request for it, which RFC 9110 allows in section 7.8.
type Upgrades struct {
	allowed []string // a name without a version allows all versions
	ignored atomic.Int64
	logger  *slog.Logger
}

// NewUpgrades returns the upgrades with those that the flags add.
func NewUpgrades(added []string, logger *slog.Logger) *Upgrades {
	return &Upgrades{allowed: append([]string{"websocket"}, added...), logger: logger}
}

// validUpgrade returns an error if no operator may allow a protocol.
func validUpgrade(name string) error {
	protocol, version, versioned := strings.Cut(name, "/")
	switch {
	case !httpguts.ValidHeaderFieldName(protocol), versioned && !httpguts.ValidHeaderFieldName(version): // tokens too
		return fmt.Errorf("--upgrade: %q, expected the name of a protocol, such as kafka or kafka/2", name)
	case strings.EqualFold(protocol, SchemeH2C), strings.EqualFold(protocol, "HTTP"), strings.EqualFold(protocol, "TLS"):
		return fmt.Errorf("--upgrade: %q, expected another protocol, because this one can carry requests that no rule evaluates", name)
	}
	return nil
}

// allow leaves in the header of a request to the upstream the first protocol that is allowed, or none. HTTP/1.0 has no
// Upgrade.
func (u *Upgrades) allow(pr *httputil.ProxyRequest) {
	ctx, h := pr.In.Context(), pr.Out.Header
	asked := strings.Join(pr.In.Header["Upgrade"], ", ")
	if h.Get("Upgrade") == "" {
		return
	}
	for name := range strings.SplitSeq(asked, ",") {
		if !pr.In.ProtoAtLeast(1, 1) {
			break
		}
		name = strings.TrimSpace(name)
		protocol, _, _ := strings.Cut(name, "/")
		if slices.ContainsFunc(u.allowed, func(a string) bool { return strings.EqualFold(a, name) || strings.EqualFold(a, protocol) }) {
			h["Upgrade"] = []string{name}
			return
		}
	}
	h.Del("Upgrade")
	h.Del("Connection")
	u.ignored.Add(1)
	u.logger.DebugContext(ctx, "upgrade ignored", "upgrade", asked, "request_id", logs.RequestIDOf(ctx))
}

// switching returns p for a request to change the protocol. It keeps the upstream's connection of an answer that does so.
func (w *keptHeader) switching(p *httputil.ReverseProxy) *httputil.ReverseProxy {
	s := *p
	s.ModifyResponse = func(r *http.Response) error {
		w.upstream = r.Body
		return p.ModifyResponse(r)
	}
	return &s
}

// Hijack is for ReverseProxy, when the protocol changes.
func (w *keptHeader) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &upgraded{conn, rw.Reader, w.upstream}, rw, nil
}

// upgraded is the connection of a client that has changed the protocol. ReverseProxy closes it before the request ends,
// and the connection to the upstream at any time later. So Close closes that first: the request's slots are released
// when the upstream is left alone.
type upgraded struct {
	net.Conn
	early    *bufio.Reader // has what the client sent with the request, which ReverseProxy ignores
	upstream io.Closer
}

// Read returns the early bytes first. The rest must not go through net/http's Reader, because that ends the request
// when the client has sent its last byte, and an answer may follow.
func (u *upgraded) Read(p []byte) (int, error) {
	if u.early.Buffered() > 0 {
		return u.early.Read(p)
	}
	return u.Conn.Read(p)
}

// Close closes both connections.
func (u *upgraded) Close() error {
	_ = u.upstream.Close() // ReverseProxy closes it once more
	return u.Conn.Close()
}

// CloseWrite is for ReverseProxy, which looks for it.
func (u *upgraded) CloseWrite() error {
	if w, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Register adds the metric of the upgrades.
func (u *Upgrades) Register(r *prometheus.Registry) {
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "diana_upgrades_ignored_total",
		Help: "Requests to change to a protocol other than WebSocket and those of --upgrade, which were sent on without that.",
	}, func() float64 { return float64(u.ignored.Load()) }))
}
