// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"

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
