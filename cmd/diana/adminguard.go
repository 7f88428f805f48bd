// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
)

// adminFlags are the flags of serve that say whom the administrators' listener answers.
type adminFlags struct {
	AdminHosts []string `name:"admin-host" sep:"none" placeholder:"NAME" help:"A host name that the administrators' listener answers for, beside addresses and localhost. May be repeated."`
	Debug      bool     `help:"Show profiles at /debug/pprof/ of the administrators' listener."`
}

// valid finds what is wrong with the flags.
func (f adminFlags) valid() error {
	for _, name := range f.AdminHosts {
		if name == "" || strings.ContainsAny(name, "/:@ ") {
			return fmt.Errorf("--admin-host: %q, expected the name of a host, without a port", name)
		}
	}
	return nil
}

// forAnyHost are the paths that health checks and Prometheus ask for, by whatever name. They
// show no client.
var forAnyHost = []string{"/healthz", "/readyz", "/metrics"}

// guard returns a handler that answers for known hosts only. Otherwise a web page could
// read what the listener shows: its owner lets the page's own name resolve to the listener's
// address, and to the browser of an administrator both are then one site (DNS rebinding). Such
// a request carries the name of the page as its Host.
//
// It also refuses what a page of another site would have the browser change.
func (f adminFlags) guard(admin http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	if f.Debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		adminProblem(w, http.StatusForbidden, "The request comes from a page of another site. Send it from a page of this address, or from a program.")
	}))
	guarded := origin.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(forAnyHost, r.URL.Path) && !f.known(r.Host) {
			adminProblem(w, http.StatusMisdirectedRequest,
				"This listener does not answer for the host of the request, so that no web page can read it by a name that resolves to it (DNS rebinding). Ask by address or by localhost, or start diana serve with --admin-host and the name.")
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// known reports whether the listener answers for a host, which may have a port.
func (f adminFlags) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	same := func(name string) bool {
		return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
	}
	return same("localhost") || slices.ContainsFunc(f.AdminHosts, same)
}

// adminProblem answers with a problem of RFC 9457.
func adminProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
