// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/internal/paths"
)

// accessLog returns a filter that logs one line for each request, when it ends. It is behind the
// limiter, because a flood of refused requests must not fill the log; see logRefusal. The line has
// no query, because queries contain secrets. names returns the attributes that name the client.
func accessLog(logger *slog.Logger, names func(*http.Request) []slog.Attr) filter {
	log := logger.Handler() // a Logger would look for its caller
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			rec := recorderOf(w)
			aborted := true // by a panic, which continues after the line is written
			defer func() {
				if !log.Enabled(r.Context(), slog.LevelInfo) {
					return
				}
				now := time.Now()
				line := slog.NewRecord(now, slog.LevelInfo, "request", 0)
				attrs := append(make([]slog.Attr, 0, 10),
					slog.String("method", r.Method),
					slog.String("path", paths.Sent(r.URL)),
					slog.Int("status", rec.status),
					slog.Int64("bytes", rec.bytes),
					slog.String("duration", now.Sub(start).String()), // with its unit in JSON too
					slog.String("request_id", requestIDOf(r.Context())),
				)
				attrs = append(attrs, names(r)...)
				if aborted {
					attrs = append(attrs, slog.Bool("aborted", true))
				}
				line.AddAttrs(attrs...)
				_ = log.Handle(r.Context(), line) // if it fails there is no place to say so
			}()
			next.ServeHTTP(rec, r)
			aborted = false
			rec.finish()
		})
	}
}

// recorderOf returns a recorder for w. If w is the ResponseWriter of the filter in front of the limiter, it is the
// recorder of that filter, and otherwise a new one.
func recorderOf(w http.ResponseWriter) *recorder {
	if v, ok := w.(*visit); ok {
		return &v.recorder
	}
	return &recorder{ResponseWriter: w}
}

// recorder is a ResponseWriter that remembers the status and the size of an answer. It supports
// Flush, without which answers would not stream, and Hijack, which WebSockets need.
type recorder struct {
	http.ResponseWriter
	status int   // 0: not yet set
	bytes  int64 // of the body; not of a hijacked connection
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status, unless it is informational, so that another one follows.
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

// WriteString is Write without a copy of the text.
func (w *recorder) WriteString(s string) (int, error) {
	w.finish()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the operating system send a file without a copy in this program.
func (w *recorder) ReadFrom(from io.Reader) (int64, error) {
	w.finish()
	n, err := io.Copy(w.ResponseWriter, from)
	w.bytes += n
	return n, err
}

// Flush sends the buffered part of the answer.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *recorder) FlushError() error {
	w.finish()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack lets the caller take over the connection.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// finish sets the status of an answer whose handler has set none.
func (w *recorder) finish() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
