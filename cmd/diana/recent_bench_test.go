// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/diana-limiter/diana"
)

// BenchmarkRecent sends requests of 100,000 devices through a limiter, in this process: without a memory of
// recent requests, with one that has all of them, and with one that has a share of the clients.
func BenchmarkRecent(b *testing.B) {
	const text = "limits: [{url: /, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, rpu: %s}]}]\n"
	for _, outcome := range []struct{ name, limit string }{{"allowed", "1000000000"}, {"refused", "0"}} {
		for _, size := range []struct {
			name     string
			requests int
		}{{"without", 0}, {"all", mostRecent}, {"share", 100_000}} {
			b.Run(outcome.name+"/"+size.name, func(b *testing.B) {
				f := &recentFlags{Recent: size.requests, RecentActors: "hash"}
				m := f.newMemory()
				options := diana.Options{Logger: slog.New(slog.DiscardHandler)}
				m.observe(&options)
				c, err := vocabulary().Parse("bench.yaml", fmt.Appendf(nil, text, outcome.limit))
				if err != nil {
					b.Fatal(err)
				}
				limiter, err := options.New(c)
				if err != nil {
					b.Fatal(err)
				}
				defer limiter.Close()
				m.follow(limiter)
				h := m.filter(limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))
				devices := make([]string, 100_000)
				for i := range devices {
					devices[i] = fmt.Sprintf("%08x", i*2654435)
				}
				send := func(next func() bool) {
					w := &discard{header: http.Header{}}
					r := httptest.NewRequest(http.MethodGet, "/api/orders", nil)
					for next() {
						r.Header["X-Device-Id"] = []string{devices[rand.IntN(len(devices))]}
						clear(w.header)
						h.ServeHTTP(w, r)
					}
				}
				n := 0
				send(func() bool { n++; return n < 1_000_000 }) // so that each ring is full, and has its share
				b.ResetTimer()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) { send(pb.Next) })
			})
		}
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
