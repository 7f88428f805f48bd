// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
)

// newProxy returns the last link of the gateway's chain, which passes requests on to
// the upstream.
//
// The path of the upstream's URL goes in front of the request's path, which keeps
// the spelling it was sent in. Only characters that no path may hold come out
// percent-encoded, so that the upstream reads the path that the limiter has judged.
// Host is the upstream's own, as with nginx's proxy_pass; the one that the client
// asked for is in X-Forwarded-Host. Answers stream: each piece goes on as it comes, or within
// flushWithin if it is known how long the answer is.
//
// The upstream may take no more of a request's body for as long as timeout, until it begins to
// answer. The transport has the same timeout for the time after the body.
func newProxy(upstream *url.URL, transport http.RoundTripper, timeout time.Duration, inForce func() *config.Config, logger *slog.Logger) http.Handler {
	known := &believed{inForce: inForce}
	reverse := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: flushWithin,
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandler:  proxyErrors(logger),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(upstream)
			pr.Out.URL.Opaque = ""                   // would be sent instead of the path; the limiter lets none through
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // not as ReverseProxy has tidied it
			if pr.In.Trailer != nil {
				passTrailer(pr, known)
			}
			pr.Out.Header.Set(requestIDField, requestIDOf(pr.In.Context()))
			forward(pr, &inForce().Identity)
			known.dropTwins(pr.Out.Header)
			dropUpgrade(pr.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error {
			if err := answerable(r); err != nil {
				return err
			}
			sentBodyOf(r.Request.Context()).answered()
			r.Header.Del(requestIDField) // the answer has it already
			return nil
		},
	}
	based := strings.Trim(upstream.Path, "/") != ""
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.EscapedPath(); based && path != "" && paths.Check(path) != nil {
			// It could climb out of the base path. Only paths.strange: judge lets it come here.
			problem(w, http.StatusBadRequest, "The gateway does not pass on such a path.")
			return
		}
		if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
			// A tunnel could carry requests that nobody has judged, and a trace shows
			// fields that only the upstream should see. nginx refuses both, too.
			problem(w, http.StatusMethodNotAllowed, "The gateway does not pass on this method.")
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			var stop func()
			r, stop = withSentBody(withBody(r), timeout)
			defer stop()
		}
		reverse.ServeHTTP(&keptHeader{ResponseWriter: w, kept: maps.Clone(w.Header())}, r)
	})
}

// answerable returns an error if no answer to a client can have the upstream's status. net/http
// panics below 100, and takes 101 for the end of HTTP whether the client has asked for it or not.
func answerable(r *http.Response) error {
	switch {
	case r.StatusCode < 100 || r.StatusCode > 999:
		return fmt.Errorf("status %q, expected 100 to 999", r.Status)
	case r.StatusCode == http.StatusSwitchingProtocols && r.Request.Header.Get("Upgrade") == "":
		return errors.New("status 101, but the client has not asked for another protocol")
	}
	return nil
}

// flushWithin is how long a piece of an answer may wait for the next one. ReverseProxy waits for
// none where the answer has no length, as that of a stream. To have it wait for none at all
// takes a goroutine and a write for the header of each answer, a fifth of the processor's time.
const flushWithin = 10 * time.Millisecond

// diverted passes requests on that the configuration diverts to other servers, as those to the
// upstream are.
type diverted struct {
	limiter   *diana.Limiter // must be set before the first request
	transport http.RoundTripper
	timeout   time.Duration
	logger    *slog.Logger
}

func newDiverted(timeout time.Duration, logger *slog.Logger) *diverted {
	return &diverted{transport: retryCancelled{newTransport(timeout)}, timeout: timeout, logger: logger}
}

// to is for diana.Options.
func (d *diverted) to(u *url.URL) http.Handler {
	return newProxy(u, d.transport, d.timeout, func() *config.Config { return d.limiter.Config() }, d.logger)
}

// dropUpgrade leaves no change of protocol but to WebSocket. Any other, such as h2c,
// would open a way on which further requests pass that nobody judges.
func dropUpgrade(h http.Header) {
	if u := h.Get("Upgrade"); u != "" && !strings.EqualFold(u, "websocket") {
		h.Del("Upgrade")
		h.Del("Connection")
	}
}

// newTransport returns the connections to the upstream. It may begin to answer as late as
// timeout after it has the request, and then take as long as it likes.
func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: min(timeout, 5*time.Second), KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   min(timeout, 10*time.Second),
		ExpectContinueTimeout: time.Second,
		ResponseHeaderTimeout: timeout,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   1024, // all are to one host, and new ones cost more than waiting ones
		DisableCompression:    true, // what the client asked for is what it gets
	}
}

// buffers lends the memory through which answers are copied.
type buffers struct{ pool sync.Pool }

type buffer [32 << 10]byte

// Get lends a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*buffer); ok {
		return p[:]
	}
	return new(buffer)[:]
}

// Put takes it back.
func (b *buffers) Put(p []byte) { b.pool.Put((*buffer)(p)) }

// keptHeader is a ResponseWriter for ReverseProxy, which clears the whole header
// when it has passed on an informational answer such as 103 Early Hints. What the
// filters in front have set must still be on the answer proper.
type keptHeader struct {
	http.ResponseWriter
	kept http.Header
}

// Unwrap is for http.ResponseController.
func (w *keptHeader) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader puts back what is gone.
func (w *keptHeader) WriteHeader(status int) {
	if status >= 200 {
		h := w.Header()
		for field, values := range w.kept {
			if _, ok := h[field]; !ok {
				h[field] = values
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}
