// SPDX-License-Identifier: MIT

package dianacaddy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/diana-limiter/diana"
)

// Handler is the module http.handlers.diana. It evaluates each request, and calls the next handler if the
// request is allowed. All handlers with the same file share one [diana.Limiter].
type Handler struct {
	// Config is the file of the configuration. The limiter follows it.
	Config string `json:"config"`

	// Actors are actors that Caddy has established, such as "account": "{http.auth.user.id}". They are
	// believed over the fields of the request: see [diana.WithActor]. Their texts have placeholders.
	Actors map[string]string `json:"actors,omitempty"`

	// Errors passes refusals to the error routes of Caddy, in place of the configured problem.
	Errors bool `json:"errors,omitempty"`

	file   string // the key in limiters; empty: none
	shared *shared
}

// limiters are the limiters of all configurations of Caddy, by file. A limiter in use by the old and the
// new configuration keeps its counters.
var limiters = caddy.NewUsagePool()

// shared is a limiter that several handlers use.
type shared struct {
	*diana.Limiter
	handler http.Handler
}

// Destruct closes the limiter.
func (s *shared) Destruct() error { return s.Close() }

// CaddyModule describes the module to Caddy.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.diana", New: func() caddy.Module { return &Handler{} }}
}

// Provision opens the limiter, or reads the file of the existing one again. The error is that of the file.
func (h *Handler) Provision(caddy.Context) error {
	if h.Config == "" {
		return errors.New("diana: config is missing, expected the file of a configuration")
	}
	file, err := filepath.Abs(h.Config)
	if err != nil {
		return err
	}
	s, loaded, err := limiters.LoadOrNew(file, func() (caddy.Destructor, error) {
		l, err := diana.Options{Refuse: refuse, Logger: slog.New(logger{})}.Open(file)
		if err != nil {
			return nil, err
		}
		return &shared{l, l.Handler(http.HandlerFunc(serveNext))}, nil
	})
	if err != nil {
		return err
	}
	h.file, h.shared = file, s.(*shared)
	if loaded {
		return h.shared.Reload()
	}
	return nil
}

// Validate returns an error for an actor without a kind or a text.
func (h *Handler) Validate() error {
	for kind, text := range h.Actors {
		if kind == "" || text == "" {
			return fmt.Errorf("diana: actor %q is %q, expected a kind such as account and a placeholder", kind, text)
		}
	}
	return nil
}

// Cleanup closes the limiter, unless another handler uses it.
func (h *Handler) Cleanup() error {
	if h.file == "" {
		return nil
	}
	_, err := limiters.Delete(h.file)
	return err
}

// exchange is a request on its way through a Handler.
type exchange struct {
	*Handler
	next   caddyhttp.Handler
	writer *writer
	err    error // for Caddy
}

// exchangeKey is the key of an exchange in the context of a request.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// ServeHTTP evaluates a request, and answers it or calls next.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	x := &exchange{Handler: h, next: next, writer: &writer{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}}
	replacer := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	for kind, text := range h.Actors {
		r = diana.WithActor(r, kind, replacer.ReplaceAll(text, ""))
	}
	h.shared.handler.ServeHTTP(x.writer, r)
	return x.err
}

// serveNext calls the next handler of Caddy, and then reports the status of the response to w, which is
// that of the limiter. Caddy answers errors, and requests that no handler answers, when the limiter has
// ended.
func serveNext(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	x.err = x.next.ServeHTTP(w, r)
	status := http.StatusOK
	if x.err != nil {
		status = http.StatusInternalServerError
		if failed := (caddyhttp.HandlerError{}); errors.As(x.err, &failed) && failed.StatusCode != 0 {
			status = failed.StatusCode
		}
	}
	x.writer.silent = true
	w.WriteHeader(status)
}

// refuse answers a request that is refused.
func refuse(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
	if x := exchangeOf(r); x.Errors {
		x.err = caddyhttp.Error(x.shared.Config().Response.Status, errRefused)
		return
	}
	d.Refuse(w, 0)
}

var errRefused = errors.New("the request is more than the limits allow")

// writer is a ResponseWriter that can ignore WriteHeader.
type writer struct {
	caddyhttp.ResponseWriterWrapper
	silent bool
}

func (w *writer) WriteHeader(status int) {
	if !w.silent {
		w.ResponseWriter.WriteHeader(status)
	}
}
