// SPDX-License-Identifier: MIT

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/diana-limiter/diana/cmd/diana/internal/clientconn"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// statusClientGone is the status in the log if the client has disconnected, or if the gateway stops,
// so that there is no answer. nginx logs the same.
const statusClientGone = 499

// proxyErrors returns the function that answers a request to which the upstream gave no answer. It
// logs the error, unless the client caused it.
func proxyErrors(logger *slog.Logger) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		var timeout net.Error
		status, detail := unsent(err)
		switch {
		case clientconn.BodyLate(r.Context()):
			problem(w, http.StatusRequestTimeout, "The request's body did not arrive in time.")
			return
		case errors.Is(context.Cause(r.Context()), errUpstreamLate):
			err = errUpstreamLate
			problem(w, http.StatusGatewayTimeout, "The upstream server did not take the request in time.")
		case r.Context().Err() != nil:
			w.WriteHeader(statusClientGone)
			panic(http.ErrAbortHandler) // net/http closes the connection without an answer
		case bodyFailed(r.Context()):
			problem(w, http.StatusBadRequest, "The request's body could not be read.")
			return
		case status != 0:
			problem(w, status, detail)
			return
		case errors.As(err, &timeout) && timeout.Timeout():
			problem(w, http.StatusGatewayTimeout, "The upstream server did not answer in time.")
		default:
			problem(w, http.StatusBadGateway, "The upstream server could not be reached, or gave no valid answer.")
		}
		if why := otherProtocol(err); why != "" {
			err = fmt.Errorf("%s: %w", why, err)
		}
		logger.ErrorContext(r.Context(), "upstream", "error", err, "request_id", logs.RequestIDOf(r.Context()))
	}
}

// otherProtocol returns what is wrong with the scheme of an upstream's URL, or "". Its protocol shows in the
// texts of errors only.
func otherProtocol(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "first record does not look like a TLS handshake"), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "the upstream speaks no TLS, expected the scheme http or h2c"
	case strings.Contains(text, "looked like an HTTP/1.1 header"), strings.Contains(text, "http2: client conn could not be established"):
		return "the upstream speaks no HTTP/2 without TLS, expected the scheme http"
	case strings.Contains(text, `malformed HTTP response "\x00\x00`):
		return "the upstream speaks HTTP/2 alone, expected the scheme h2c"
	case strings.Contains(text, "readLoopPeekFailLocked"): // the same, if its first bytes arrive before the request is sent
		return "the upstream sends before it is asked, which is not HTTP/1.1; for HTTP/2 alone use the scheme h2c"
	}
	return ""
}

// problem answers with a problem of RFC 9457. Strangers read the detail, so it must not describe the
// servers behind the gateway.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // a client that has disconnected needs no answer
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
}

// body is a request's body that remembers whether a Read has failed. Otherwise that failure would look
// like one of the upstream, because net/http does not notice that a client disconnects before its
// body has ended.
//
// It also remembers that the body has ended. The transport then reads once more, and net/http may have
// closed the body, because the upstream has already answered. That Read would fail, and the transport
// would break off the answer.
type body struct {
	io.ReadCloser
	ended  bool // for the transport's goroutine alone
	failed atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.ended = err == io.EOF
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

type bodyKey struct{}

// withBody returns the request with such a body, which is also in its context.
func withBody(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &body{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b
	return r
}

func bodyFailed(ctx context.Context) bool {
	b, ok := ctx.Value(bodyKey{}).(*body)
	return ok && b.failed.Load()
}
