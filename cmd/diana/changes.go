// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"
	"net/http"
	"os"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/config"
)

// changes returns a handler with the routes that change the remote configuration, and next for all others. s are
// the settings of the limiter.
func (c *serveCommand) changes(s settings, limiter *diana.Limiter, next http.Handler, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	api := &versions.API{
		Words:  vocabulary(),
		Config: limiter.Config,
		Local:  s.text,
		Accept: func(next *config.Config) error {
			if _, err := compile(next); err != nil {
				return err
			}
			return c.accept(next)
		},
		Audit: versions.NewAudit(logger),
	}
	api.Register(mux)
	return mux
}

// text returns the text of the settings.
func (s settings) text() ([]byte, error) {
	switch {
	case s.empty:
		return nil, nil
	case s.builtIn():
		return demo, nil
	}
	return os.ReadFile(s.file)
}
