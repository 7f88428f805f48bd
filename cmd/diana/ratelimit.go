// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/ratelimit"
)

// ratelimitCommand serves in place of envoyproxy/ratelimit.
type ratelimitCommand struct{}

// Help is the end of what --help prints.
func (ratelimitCommand) Help() string {
	return `The environment has all settings, with the names and defaults of envoyproxy/ratelimit, such as PORT, GRPC_PORT, REDIS_URL and RUNTIME_ROOT. A program with the name ratelimit, such as a link, runs this command without arguments, so an image with Diana at /bin/ratelimit replaces theirs.`
}

// arguments returns the arguments of the program. One by the name of ratelimit is that command. So is /bin/ratelimit as the
// first argument: a container whose command is that passes it to the program of the image.
func arguments(args []string) []string {
	named := func(text string) bool { return strings.TrimSuffix(filepath.Base(text), ".exe") == "ratelimit" }
	switch {
	case len(args) == 0:
		return nil
	case named(args[0]):
		return append([]string{"ratelimit"}, args[1:]...)
	case len(args) > 1 && named(args[1]) && args[1] != "ratelimit":
		return append([]string{"ratelimit"}, args[2:]...)
	}
	return args[1:]
}

// Run serves until a signal or the end of ctx stops it.
func (ratelimitCommand) Run(ctx context.Context, o *command.Output) error {
	settings, ignored, err := ratelimit.Read(os.LookupEnv)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			o.Complainf("diana ratelimit: %s\n", strings.TrimSuffix(line, "\n"))
		}
		return command.ErrReported
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	flags := settings.Log()
	logger := flags.Logger(o.Err)
	slog.SetDefault(logger) // also for package log, which net/http writes to
	if len(ignored) > 0 {
		logger.Warn("variables without effect", "names", strings.Join(ignored, " "))
	}
	fitContainer(logger)
	command.KeepHeapFloor()
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	type opened struct {
		service *ratelimit.Service
		err     error
	}
	done := make(chan opened, 1)
	go func() {
		s, err := ratelimit.Open(opening, &settings, logger)
		done <- opened{s, err}
	}()
	for {
		select {
		case s := <-done:
			if s.err != nil {
				return s.err
			}
			s.service.Addresses(func(name, address string) { o.Printf("diana: %s on %s\n", name, address) })
			return s.service.Run(ctx, signals)
		case got := <-signals: // while the first limits are waited for
			if got != syscall.SIGHUP {
				logger.Info("stopped at the start")
				return nil
			}
		}
	}
}
