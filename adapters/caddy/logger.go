// SPDX-License-Identifier: MIT

package dianacaddy

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// logger is a slog.Handler that writes to the default log of Caddy. It asks for that log each time, because
// a limiter can outlive the configuration of Caddy that has opened it.
type logger struct{}

func current() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("http.handlers.diana"))
}

func (logger) Enabled(ctx context.Context, level slog.Level) bool {
	return current().Enabled(ctx, level)
}

func (logger) Handle(ctx context.Context, r slog.Record) error { return current().Handle(ctx, r) }

// WithAttrs and WithGroup keep the log of this moment. Diana calls neither.
func (logger) WithAttrs(a []slog.Attr) slog.Handler { return current().WithAttrs(a) }
func (logger) WithGroup(name string) slog.Handler   { return current().WithGroup(name) }
