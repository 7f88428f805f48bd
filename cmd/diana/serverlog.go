// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// serverLog is a Writer for http.Server.ErrorLog. It logs each line as an error, except for a TLS handshake
// that has failed. Every scanner of the Internet causes such lines, so they are for debugging.
type serverLog struct{ logger *slog.Logger }

func newServerLog(logger *slog.Logger) *log.Logger { return log.New(serverLog{logger}, "", 0) }

// Write logs a line.
func (l serverLog) Write(line []byte) (int, error) {
	level := slog.LevelError
	if bytes.HasPrefix(line, []byte("http: TLS handshake error ")) {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
