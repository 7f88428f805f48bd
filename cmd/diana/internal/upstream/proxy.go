// SPDX-License-Identifier: MIT

package upstream

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/respond"
)

// NewProxy returns the last link of the gateway's chain, which sends requests to the upstream.
//
// It puts the path of the upstream's URL in front of the request's path, whose spelling it keeps.
// Only characters that are not valid in a path are percent-encoded, so that the upstream reads the
// path that the limiter evaluated. Host is the upstream's own, as with nginx's proxy_pass, unless keepHost
// is set. X-Forwarded-Host has the one of the client in both cases. Answers stream: each piece is sent as it arrives, or
// within flushWithin if the length of the answer is known.
//
// timeout is the longest pause in which the upstream neither takes more of a request's body nor
// begins to answer. The transport has the same timeout for the time after the body.
func NewProxy(upstream *url.URL, keepHost bool, transport http.RoundTripper, timeout time.Duration, active func() *config.Config, upgrades *Upgrades, logger *slog.Logger) http.Handler {
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
			pr.Out.Header[logs.RequestIDField] = []string{logs.RequestIDOf(pr.In.Context())}
			forward(pr, &active().Identity)
			fields.dropTwins(pr.Out.Header)
			upgrades.allow(pr)
		},
		ModifyResponse: func(r *http.Response) error {
			if err := answerable(r); err != nil {
				return err
			}
			if r.Request.Body != nil { // a search of the context takes time
				sentBodyOf(r.Request.Context()).answered()
			}
			if len(r.Header[logs.RequestIDField]) > 0 {
				logs.PreferID(r)
			}
			delete(r.Header, respond.DivertedField) // only Diana says so
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
		kept := keepHeader(w, r)
		defer kept.flushBroken()
		if len(r.Header["Upgrade"]) > 0 {
			to = kept.switching(to)
		}
		to.ServeHTTP(kept, r)
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

// Diverted returns the Upstream of diana.Options, which makes the proxies to other servers that the configuration
// diverts to. active is that of NewProxy.
func Diverted(t Timeouts, active func() *config.Config, upgrades *Upgrades, logger *slog.Logger) func(*url.URL) http.Handler {
	transport := retryCancelled{NewTransport(t)}
	return func(to *url.URL) http.Handler {
		return NewProxy(to, false, transport, t.Upstream, active, upgrades, logger)
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

// keptHeader is a ResponseWriter for ReverseProxy. It passes on what the upstream has answered and adds nothing:
//
//   - ReverseProxy sends the whole header with an informational answer such as 103 Early Hints, and clears it then.
//     The final answer alone must have the fields that the filters have set, beside those of the upstream.
//   - net/http guesses the Content-Type of an answer without one.
//   - net/http drops the beginning of an answer that breaks off, if it is still in a buffer. Then a client sees a
//     connection that closes without an answer, and many clients send the request again.
//   - ReverseProxy flushes the header while it waits for the end of the body. A client of gRPC reads a status in the
//     header of an answer only if the answer ends with the header.
type keptHeader struct {
	http.ResponseWriter
	hints    bool // the client understands informational answers; HTTP/1.0 has none
	status   int  // 0 until the final answer begins
	bodyless bool // a status of gRPC is in the header
	kept     []keptField
	array    [4]keptField // of kept, because the filters set one to four fields
	cleared  bool
	upstream io.Closer // of an answer to a request to change the protocol
}

type keptField struct {
	name   string
	values []string
}

// ofConnection are fields of an informational answer that hold for one connection. ReverseProxy removes them from final
// answers only.
var ofConnection = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// keepHeader returns w with the fields that it has now.
func keepHeader(w http.ResponseWriter, r *http.Request) *keptHeader {
	k := &keptHeader{ResponseWriter: w, hints: r.ProtoAtLeast(1, 1)}
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
	case status < 200: // has the upstream's fields alone
		h := w.Header()
		for _, field := range w.kept {
			if own := h[field.name][min(len(field.values), len(h[field.name])):]; len(own) > 0 {
				h[field.name] = own
			} else {
				delete(h, field.name)
			}
		}
		for _, list := range h["Connection"] {
			for name := range strings.SplitSeq(list, ",") {
				h.Del(strings.TrimSpace(name))
			}
		}
		for _, name := range ofConnection {
			delete(h, name)
		}
		if w.cleared = true; !w.hints {
			return
		}
	case w.cleared:
		h := w.Header()
		for _, field := range w.kept {
			if field.name != logs.RequestIDField || len(h[logs.RequestIDField]) == 0 { // the upstream's own wins
				h[field.name] = slices.Concat(field.values, h[field.name])
			}
		}
		w.cleared = false
	}
	if status >= 200 {
		h := w.Header()
		w.status, w.bodyless = status, len(h["Grpc-Status"]) > 0
		if len(h["Content-Type"]) == 0 {
			h["Content-Type"] = nil
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// FlushError is for ReverseProxy.
func (w *keptHeader) FlushError() error {
	if w.bodyless {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// flushBroken sends what there is of an answer that breaks off. It must be deferred, because ReverseProxy panics
// then. A client that has disconnected needs no answer.
func (w *keptHeader) flushBroken() {
	e := recover()
	if e == nil {
		return
	}
	if err, ok := e.(error); ok && errors.Is(err, http.ErrAbortHandler) && w.status != 0 && w.status != statusClientGone {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
	panic(e)
}
