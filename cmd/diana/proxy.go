// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/respond"
)

// newProxy returns the last link of the gateway's chain, which sends requests to the upstream.
//
// It puts the path of the upstream's URL in front of the request's path, whose spelling it keeps.
// Only characters that are not valid in a path are percent-encoded, so that the upstream reads the
// path that the limiter evaluated. Host is the upstream's own, as with nginx's proxy_pass, unless keepHost
// is set. X-Forwarded-Host has the one of the client in both cases. Answers stream: each piece is sent as it arrives, or
// within flushWithin if the length of the answer is known.
//
// timeout is the longest pause in which the upstream neither takes more of a request's body nor
// begins to answer. The transport has the same timeout for the time after the body.
func newProxy(upstream *url.URL, keepHost bool, transport http.RoundTripper, timeout time.Duration, active func() *config.Config, logger *slog.Logger) http.Handler {
	fields, memory := &believed{active: active}, &buffers{}
	reverse := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: flushWithin,
		BufferPool:    memory,
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandler:  proxyErrors(logger),
		Rewrite: func(pr *httputil.ProxyRequest) {
			if u := pr.Out.URL; u.RawPath != "" {
				u.RawPath = paths.Sent(u) // SetURL would decode one that is not valid
			}
			pr.SetURL(upstream)
			if keepHost {
				pr.Out.Host = pr.In.Host
			}
			pr.Out.URL.Opaque = ""                   // would replace the path; the limiter refuses such requests
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // ReverseProxy has removed parts that it cannot parse
			if pr.In.Trailer != nil {
				passTrailer(pr, fields)
			}
			pr.Out.Header[requestIDField] = []string{requestIDOf(pr.In.Context())}
			forward(pr, &active().Identity)
			fields.dropTwins(pr.Out.Header)
			dropUpgrade(pr.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error {
			if err := answerable(r); err != nil {
				return err
			}
			if r.Request.Body != nil { // a search of the context takes time
				sentBodyOf(r.Request.Context()).answered()
			}
			delete(r.Header, requestIDField) // the filter requestID has set it
			return nil
		},
	}
	proxy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
			// A tunnel could carry requests that no rule evaluates, and a trace shows
			// fields that only the upstream should see. nginx refuses both, too.
			problem(w, http.StatusMethodNotAllowed, "The gateway does not pass on this method.")
			return
		}
		if why := malformed(r, keepHost); why != "" {
			problem(w, http.StatusBadRequest, why)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			var stop func()
			r, stop = withSentBody(withBody(r), timeout)
			defer stop()
		}
		to := reverse
		if size := respond.Chunk(w); size > 0 {
			paced := *reverse
			paced.BufferPool = chunks{memory, size}
			to = &paced
		}
		to.ServeHTTP(keepHeader(w), r)
	})
	if strings.Trim(upstream.Path, "/") == "" {
		return proxy
	}
	return respond.KeepBelow(proxy)
}

// answerable returns an error if an answer to the client cannot have the upstream's status. net/http
// panics at a status below 100, and ends HTTP at 101 even if the client has not asked for that.
func answerable(r *http.Response) error {
	switch {
	case r.StatusCode < 100 || r.StatusCode > 999:
		return fmt.Errorf("status %q, expected 100 to 999", r.Status)
	case r.StatusCode == http.StatusSwitchingProtocols && r.Request.Header.Get("Upgrade") == "":
		return errors.New("status 101, but the client has not asked for another protocol")
	}
	return nil
}

// flushWithin is how long a piece of an answer may wait for the next one. ReverseProxy sends each piece
// at once if the answer has no length, as a stream. Rejected: to send every piece at once. That takes
// a goroutine and a write for the header of each answer, a fifth of the processor's time.
const flushWithin = 10 * time.Millisecond

// diverted sends requests to other servers that the configuration diverts to, in the same way as
// requests to the upstream.
type diverted struct {
	limiter   *diana.Limiter // must be set before the first request
	transport http.RoundTripper
	timeout   time.Duration
	logger    *slog.Logger
}

func newDiverted(t timeouts, logger *slog.Logger) *diverted {
	return &diverted{transport: retryCancelled{newTransport(t)}, timeout: t.Upstream, logger: logger}
}

// to is the Upstream of diana.Options.
func (d *diverted) to(u *url.URL) http.Handler {
	return newProxy(u, false, d.transport, d.timeout, func() *config.Config { return d.limiter.Config() }, d.logger)
}

// dropUpgrade removes an Upgrade to any protocol but WebSocket. Another one, such as h2c, could carry
// further requests that no rule evaluates.
func dropUpgrade(h http.Header) {
	if u := h.Get("Upgrade"); u != "" && !strings.EqualFold(u, "websocket") {
		h.Del("Upgrade")
		h.Del("Connection")
	}
}

// buffers is a pool of buffers for copying answers.
type buffers struct{ pool sync.Pool }

type buffer [32 << 10]byte

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*buffer); ok {
		return p[:]
	}
	return new(buffer)[:]
}

// Put returns a buffer to the pool.
func (b *buffers) Put(p []byte) { b.pool.Put((*buffer)(p)) }

// chunks are buffers of which only a part is used, so that an answer with a bandwidth is read in the
// pieces in which it is sent.
type chunks struct {
	buffers *buffers
	size    int // bytes
}

// Get returns a buffer.
func (c chunks) Get() []byte { return c.buffers.Get()[:c.size] }

// Put returns a buffer to the pool.
func (c chunks) Put(p []byte) { c.buffers.Put(p[:cap(p)]) }

// keptHeader is a ResponseWriter for ReverseProxy, which clears the whole header after it has sent an
// informational answer such as 103 Early Hints. The final answer must still have the fields that the
// filters have set, beside those of the upstream.
type keptHeader struct {
	http.ResponseWriter
	kept    []keptField
	array   [4]keptField // of kept, because the filters set one to four fields
	cleared bool
}

type keptField struct {
	name   string
	values []string
}

// keepHeader returns w with the fields that it has now.
func keepHeader(w http.ResponseWriter) *keptHeader {
	k := &keptHeader{ResponseWriter: w}
	k.kept = k.array[:0]
	for name, values := range w.Header() {
		k.kept = append(k.kept, keptField{name, values})
	}
	return k
}

// Unwrap is for http.ResponseController.
func (w *keptHeader) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader restores the fields that ReverseProxy has cleared.
func (w *keptHeader) WriteHeader(status int) {
	switch {
	case status < 200:
		w.cleared = true
	case w.cleared:
		h := w.Header()
		for _, field := range w.kept {
			h[field.name] = slices.Concat(field.values, h[field.name])
		}
		w.cleared = false
	}
	w.ResponseWriter.WriteHeader(status)
}
