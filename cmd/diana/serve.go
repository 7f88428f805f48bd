// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/gateway"
)

// serveCommand runs the gateway.
type serveCommand struct{ gateway.Flags }

// Help is the end of what --help prints.
func (serveCommand) Help() string {
	return `The gateway notices changes of the configuration file; SIGHUP lets it read the file at once. At SIGTERM and SIGINT the gateway finishes the requests in flight, for at most --drain-timeout, and ends. A second such signal closes their connections without an answer.

A TIME is a number and a unit, such as 500ms, 60s or 2m, of at least 1ms. --read-timeout and --write-timeout start again with each progress, and do not apply to upgraded connections such as WebSockets.

The administrators' listener changes something only with --admin-token: a client sends the token as Authorization: Bearer TOKEN. The gateway reads the token again at each use. A proxy on this machine makes every request look local, so it must check the token itself.`
}

// Run serves until a signal or the end of ctx stops it.
func (c *serveCommand) Run(ctx context.Context, o *command.Output) error {
	if err := c.Valid(); err != nil {
		return command.Misuse(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	logger := c.Log.Logger(o.Err)
	slog.SetDefault(logger) // also for package log, which net/http writes to
	fitContainer(logger)
	command.KeepHeapFloor()
	g, err := gateway.Open(ctx, signals, &c.Flags, o, logger)
	if errors.Is(err, gateway.ErrStopped) {
		logger.Info("stopped at the start")
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Run(ctx, signals, func() { g.Print(o) })
}
