// SPDX-License-Identifier: MIT

package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/envoy"
)

// State is what /status shows: the state of the limiter, and that of the limits of descriptors.
type State struct {
	diana.Status
	Descriptors *diana.Status `json:"descriptors,omitempty"` // nil: there are no descriptors
}

// NewState returns the state now. limits may be nil.
func NewState(limiter *diana.Limiter, limits *envoy.RateLimit) State {
	s := State{Status: limiter.Status()}
	if limits != nil {
		of := limits.Status()
		s.Descriptors = &of
	}
	return s
}

// Pages returns the pages of the administrators' listener. draining reports whether the gateway
// accepts no further requests. /metrics shows metrics.
func Pages(now func() State, draining func() bool, metrics prometheus.Gatherer, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		sayHealth(w, now(), http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if draining() {
			say(w, http.StatusServiceUnavailable, "draining")
			return
		}
		sayHealth(w, now(), http.StatusOK, "ready") // a Limiter always has a configuration
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(now())
	})
	return mux
}

// sayHealth answers with the word well, or with degraded. A degraded limiter is healthy, because it
// still decides. To take it out of service would do more harm.
func sayHealth(w http.ResponseWriter, s State, code int, well string) {
	if s.Degraded || s.Descriptors != nil && s.Descriptors.Degraded {
		well = "degraded"
	}
	say(w, code, well)
}

func say(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, word+"\n")
}
