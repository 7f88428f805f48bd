// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// accessLog returns a filter that logs a line for each request, when it is finished.
// A request that the limiter refuses does not come this far, because a flood must not fill
// the log; see logRefusal. The query is not logged, because secrets travel in it. who
// returns the attributes that name the client.
func accessLog(logger *slog.Logger, who func(*http.Request) []slog.Attr) filter {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			rec := &recorder{ResponseWriter: w}
			aborted := true // by a panic, which goes on after the line is written
			defer func() {
				line := []slog.Attr{
					slog.String("method", r.Method),
					slog.String("path", r.URL.EscapedPath()),
					slog.Int("status", rec.status),
					slog.Int64("bytes", rec.bytes),
					slog.String("duration", time.Since(start).String()), // with its unit in JSON too
					slog.String("request_id", requestIDOf(r.Context())),
				}
				line = append(line, who(r)...)
				if aborted {
					line = append(line, slog.Bool("aborted", true))
				}
				logger.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
			}()
			next.ServeHTTP(rec, r)
			aborted = false
			rec.finish()
		})
	}
}

// recorder remembers what is answered. It keeps the abilities of the ResponseWriter
// that it stands for: without Flush an answer would not stream, without Hijack no
// WebSocket would pass.
type recorder struct {
	http.ResponseWriter
	status int   // 0 until there is one
	bytes  int64 // of the body; not those of a connection that was taken over
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status, unless it is one that another will follow.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.finish()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets a file be sent without being copied through this program.
func (w *recorder) ReadFrom(from io.Reader) (int64, error) {
	w.finish()
	n, err := io.Copy(w.ResponseWriter, from)
	w.bytes += n
	return n, err
}

// Flush sends what has been written.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *recorder) FlushError() error {
	w.finish()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack hands the connection over.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// finish sets the status that an answer has whose handler has set none.
func (w *recorder) finish() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
