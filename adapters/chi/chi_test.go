// SPDX-License-Identifier: MIT

package chi_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func TestHandler(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{
		Start:     start,
		Pattern:   "/users/{id}",
		Unknown:   []string{"charge /silent", "charge /panic"},
		NoOptions: true,
	})
}

func start(t *testing.T, app *adaptertest.App) string {
	t.Helper()
	router := chi.NewRouter()
	users := chi.Router(router)
	switch {
	case app.Single:
		router.Use(recoverer)
		users = router.With(app.Limiter.Handler)
	case app.Inside:
		router.Use(app.Limiter.Handler, recoverer)
	default:
		router.Use(recoverer, app.Limiter.Handler)
	}
	users.Get("/users/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "user "+chi.URLParam(r, "id"))
	})
	users.Get("/users/new", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "new") })
	routes(router, app)
	return adaptertest.Serve(t, router)
}

// recoverer is chi's Recoverer, which prints the stack unless a request has a LogEntry.
func recoverer(next http.Handler) http.Handler {
	return middleware.RequestLogger(silent{})(middleware.Recoverer(next))
}

type silent struct{}

func (silent) NewLogEntry(*http.Request) middleware.LogEntry { return silent{} }

func (silent) Write(int, int, http.Header, time.Duration, any) {}

func (silent) Panic(any, []byte) {}

func routes(router chi.Router, app *adaptertest.App) {
	hello := func(w http.ResponseWriter, _ *http.Request) {
		app.Calls.Add(1)
		_, _ = io.WriteString(w, "hello")
	}
	router.Get("/hello", hello)
	router.Post("/hello", hello)
	router.Head("/hello", hello)
	router.Get("/status/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(chi.URLParam(r, "n"))
		w.WriteHeader(n)
		_, _ = io.WriteString(w, "status")
	})
	router.Get("/silent", func(http.ResponseWriter, *http.Request) {})
	router.Get("/error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "conflict", http.StatusConflict) })
	router.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("a mistake") })
	router.Get("/wait", func(w http.ResponseWriter, r *http.Request) {
		app.Wait(r.Context())
		_, _ = io.WriteString(w, "done")
	})
	router.Get("/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		app.Wait(r.Context())
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	router.Get("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	router.Get("/big", func(w http.ResponseWriter, _ *http.Request) {
		for b := adaptertest.Big; len(b) > 0; b = b[min(10_000, len(b)):] {
			if _, err := w.Write(b[:min(10_000, len(b))]); err != nil {
				return
			}
		}
	})
	router.Get("/trailer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "4")
	})
	router.Post("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = w.Write(body)
	})
	router.Get("/socket", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
}
