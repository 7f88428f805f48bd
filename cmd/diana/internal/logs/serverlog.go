// SPDX-License-Identifier: MIT

package logs

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"slices"
)

// serverLog is a Writer for http.Server.ErrorLog. It logs each line as an error, except for those that clients
// cause. Every scanner of the Internet causes such lines, so they are for debugging.
type serverLog struct{ logger *slog.Logger }

// Server returns a logger for http.Server.ErrorLog.
func Server(logger *slog.Logger) *log.Logger { return log.New(serverLog{logger}, "", 0) }

// byClients are the beginnings of the lines that clients cause.
var byClients = [][]byte{
	[]byte("http: TLS handshake error "),
	[]byte("http2: server: error reading preface "),
	[]byte("http2: server connection error "),
	[]byte("http2: server closing client connection"),
	[]byte("http2: received GOAWAY "),
	[]byte("timeout waiting for SETTINGS frames "),
	[]byte("timeout waiting for PING response"),
}

// Write logs a line.
func (l serverLog) Write(line []byte) (int, error) {
	level := slog.LevelError
	if slices.ContainsFunc(byClients, func(start []byte) bool { return bytes.HasPrefix(line, start) }) {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
