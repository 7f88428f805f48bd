// SPDX-License-Identifier: MIT

package ratelimit

import (
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/diana-limiter/diana/envoy"
)

// pages answers at the address for requests in JSON and for probes.
func pages(limits http.Handler, healthy func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", limits)
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "OK") // a client that has disconnected needs no answer
	})
	return mux
}

// debugPages answers at the address for debugging.
func debugPages(limits *envoy.RateLimit) http.Handler {
	mux := http.NewServeMux()
	list := ""
	add := func(path, help string, h http.HandlerFunc) {
		mux.HandleFunc(path, h)
		list += path + ": " + help + "\n"
	}
	add("/debug/pprof/", "root of various pprof endpoints. hit for help.", pprof.Index)
	add("/debug/pprof/profile", "CPU profiling endpoint", pprof.Profile)
	add("/debug/pprof/trace", "trace endpoint", pprof.Trace)
	add("/rlconfig", "print out the currently loaded configuration for debugging", func(w http.ResponseWriter, _ *http.Request) {
		for l := range limits.Each {
			_, _ = fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", l.Name, l.Unit, l.RequestsPerUnit, l.Shadow, l.Quota)
		}
	})
	add("/stats", "print out stats", func(w http.ResponseWriter, _ *http.Request) {
		expvar.Do(func(v expvar.KeyValue) { _, _ = fmt.Fprintf(w, "%s: %s\n", v.Key, v.Value) })
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
	return mux
}
