// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"
	"net/http"

	"github.com/diana-limiter/diana/cmd/diana/internal/console"
)

// access returns who may use the administrators' listener.
func (f adminFlags) access(logger *slog.Logger) *console.Access {
	o := console.Options{Open: forAnyHost, Logger: logger}
	if f.AdminToken.isSet() {
		o.Token = f.AdminToken.value
	}
	return console.NewAccess(o)
}

// withAPI returns admin with the routes that each of register adds.
func withAPI(admin http.Handler, register ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admin)
	for _, add := range register {
		add(mux)
	}
	return mux
}
