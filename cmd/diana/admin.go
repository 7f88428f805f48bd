// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/diana-limiter/diana"
)

// newAdmin returns the pages of the administrators' listener. draining reports whether the gateway
// accepts no further requests. /metrics shows metrics.
func newAdmin(limiter *diana.Limiter, draining func() bool, metrics prometheus.Gatherer, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		sayHealth(w, limiter, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if draining() {
			say(w, http.StatusServiceUnavailable, "draining")
			return
		}
		sayHealth(w, limiter, http.StatusOK, "ready") // a Limiter always has a configuration
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(limiter.Status())
	})
	return mux
}

// sayHealth answers with the word well, or with degraded. A degraded limiter is healthy, because it
// still decides. To take it out of service would do more harm.
func sayHealth(w http.ResponseWriter, limiter *diana.Limiter, status int, well string) {
	if limiter.Status().Degraded {
		well = "degraded"
	}
	say(w, status, well)
}

func say(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, word+"\n")
}
