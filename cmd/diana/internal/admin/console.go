// SPDX-License-Identifier: MIT

package admin

import (
	"log/slog"
	"net/http"

	"github.com/diana-limiter/diana/cmd/diana/internal/console"
)

// access returns who may use the administrators' listener.
func (f Flags) access(logger *slog.Logger) *console.Access {
	o := console.Options{Open: forAnyHost, Logger: logger}
	if f.AdminToken.IsSet() {
		o.Token = f.AdminToken.Value
	}
	return console.NewAccess(o)
}

// Stranger reports whether nothing shows that the sender of a request that may proceed is an operator: there is no
// token, and the request comes from another machine.
func (f Flags) Stranger(r *http.Request) bool {
	return !f.AdminToken.IsSet() && !console.FromLoopback(r)
}

// WithAPI returns admin with the routes that each of register adds.
func WithAPI(admin http.Handler, register ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	for _, add := range register {
		add(mux)
	}
	return mux
}
