// SPDX-License-Identifier: MIT

package gateway

import (
	"log/slog"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	"github.com/diana-limiter/diana/config"
)

// changes returns the routes that change the remote configuration. s are the settings of the limiter.
func changes(s command.Settings, limiter *diana.Limiter, accept func(*config.Config) error, logger *slog.Logger) *versions.API {
	return &versions.API{
		Words:  command.Vocabulary(),
		Config: limiter.Config,
		Local:  s.Text,
		Accept: func(next *config.Config) error {
			if _, err := command.Compile(next); err != nil {
				return err
			}
			return accept(next)
		},
		Audit: versions.NewAudit(logger),
	}
}

// whatIf returns the options for proposed configurations, which a limiter evaluates on the requests that the ring remembers.
func whatIf(limiter *diana.Limiter, ring *history.Ring, f *Flags) whatif.Options {
	return whatif.Options{
		Ring: ring, Vocabulary: command.Vocabulary(), Config: limiter.Config, Status: limiter.Status,
		Rejected: limiter.Rejected, Accept: f.Decisions.accept, Stranger: f.Access.Stranger,
	}
}
