// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"
	"os"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/config"
)

// changes returns the routes that change the remote configuration. s are the settings of the limiter.
func (c *serveCommand) changes(s settings, limiter *diana.Limiter, logger *slog.Logger) *versions.API {
	return &versions.API{
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
