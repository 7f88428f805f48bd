// SPDX-License-Identifier: MIT

package admin

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/cmd/diana/internal/console"
)

// Flags are the flags of serve for access to the administrators' listener.
type Flags struct {
	AdminHosts []string `name:"admin-host" sep:"none" placeholder:"NAME" help:"Host name that the administrators' listener answers for, besides addresses and localhost. May be repeated."`
	AdminToken Token    `placeholder:"file:PATH|env:NAME" help:"The secret of the administrators' listener. Requests that change something need it, and from other machines those that show identities."`
	Debug      bool     `help:"Show profiles at /debug/pprof/ of the administrators' listener."`
}

// Valid returns an error if a flag is wrong.
func (f Flags) Valid() error {
	for _, name := range f.AdminHosts {
		if name == "" || strings.ContainsAny(name, "/:@ ") {
			return fmt.Errorf("--admin-host: %q, expected the name of a host, without a port", name)
		}
	}
	return nil
}

// forAnyHost are the paths that health checks and Prometheus request, by any host name. They show no
// identity.
var forAnyHost = []string{"/healthz", "/readyz", "/metrics"}

// Guard returns the handler of the administrators' listener: the console, the pages of admin, POST /reset, and
// profiles with --debug.
//
// It answers for known hosts only. Otherwise a web page could read the listener by DNS rebinding: the
// owner of the page lets its name resolve to the listener's address. An administrator's browser then
// takes both for one site. The Host of such a request is the name of the page.
//
// It also refuses changes by a page of another site, and requests without the token that need one.
func (f Flags) Guard(admin, reset http.Handler, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	mux.Handle("POST /reset", reset)
	mux.Handle("POST /api/v1/reset", reset)
	if f.Debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		adminapi.Problem(w, http.StatusForbidden, "The request comes from a page of another site. Send it from a page of this address, or from a program.")
	}))
	guarded := origin.Handler(console.New(f.access(logger), mux))
	return console.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(forAnyHost, r.URL.Path) && !f.known(r.Host) {
			adminapi.Problem(w, http.StatusMisdirectedRequest,
				"This listener does not answer for the host of the request, because a web page could read it by a name that resolves to it (DNS rebinding). Use an address or localhost, or start diana serve with --admin-host and the name.")
			return
		}
		guarded.ServeHTTP(w, r)
	}))
}

// known reports whether the listener answers for a host, which may have a port.
func (f Flags) known(host string) bool {
	bracketed := strings.HasPrefix(host, "[")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inside, ok := strings.CutSuffix(host, "]"); ok && bracketed {
		host = inside[1:]
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == "" && a.Is6() == (bracketed || strings.Contains(host, ":"))
	}
	if bracketed {
		return false
	}
	same := func(name string) bool {
		return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
	}
	return same("localhost") || slices.ContainsFunc(f.AdminHosts, same)
}
