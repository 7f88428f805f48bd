// SPDX-License-Identifier: MIT

package logs

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/chain"
	"github.com/diana-limiter/diana/internal/paths"
)

// Access returns a filter that logs one line for each request, when it ends. It is behind the
// limiter, because a flood of refused requests must not fill the log; see logRefusal. The line has
// no query, because queries contain secrets. names returns the attributes that name the client.
func Access(logger *slog.Logger, names func(*http.Request) []slog.Attr) chain.Filter {
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
				attrs := append(make([]slog.Attr, 0, 11),
					slog.String("method", r.Method),
					slog.String("path", paths.Sent(r.URL)),
					slog.Int("status", rec.Status),
					slog.Int64("bytes", rec.Bytes),
					slog.String("duration", now.Sub(start).String()), // with its unit in JSON too
					slog.String("request_id", RequestIDOf(r.Context())),
				)
				if own := rec.Header().Get(RequestIDField); own != RequestIDOf(r.Context()) {
					attrs = append(attrs, slog.String("upstream_request_id", own))
				}
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
func recorderOf(w http.ResponseWriter) *Recorder {
	if v, ok := w.(interface{ recorded() *Recorder }); ok {
		return v.recorded()
	}
	return &Recorder{ResponseWriter: w}
}

// Recorder is a ResponseWriter that remembers the status and the size of an answer. It supports
// Flush, without which answers would not stream, and Hijack, which WebSockets need.
type Recorder struct {
	http.ResponseWriter
	Status int   // 0: not yet set
	Bytes  int64 // of the body; not of a hijacked connection
}

func (w *Recorder) recorded() *Recorder { return w }

// Unwrap is for http.ResponseController.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status, unless it is informational, so that another one follows.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write remembers the size.
func (w *Recorder) Write(b []byte) (int, error) {
	w.finish()
	n, err := w.ResponseWriter.Write(b)
	w.Bytes += int64(n)
	return n, err
}

// WriteString is Write without a copy of the text.
func (w *Recorder) WriteString(s string) (int, error) {
	w.finish()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.Bytes += int64(n)
	return n, err
}

// ReadFrom lets the operating system send a file without a copy in this program.
func (w *Recorder) ReadFrom(from io.Reader) (int64, error) {
	w.finish()
	n, err := io.Copy(w.ResponseWriter, from)
	w.Bytes += n
	return n, err
}

// Flush sends the buffered part of the answer.
func (w *Recorder) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *Recorder) FlushError() error {
	w.finish()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack lets the caller take over the connection.
func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.Status == 0 {
		w.Status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// finish sets the status of an answer whose handler has set none.
func (w *Recorder) finish() {
	if w.Status == 0 {
		w.Status = http.StatusOK
	}
}
