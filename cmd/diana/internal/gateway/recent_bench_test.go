// SPDX-License-Identifier: MIT

package gateway

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/config"
)

// BenchmarkRecent sends requests of 100,000 devices through three limiters. One has no memory of recent requests, one
// has a memory of all, and one has a memory of a share of the clients. They alternate every few milliseconds, so that
// other work of the machine slows each of them equally. BenchmarkRecent reports the time of each for a request.
func BenchmarkRecent(b *testing.B) {
	const round = 2000 // requests
	text := "limits: [{url: /, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, rpu: %s}]}]\n"
	devices := make([][]string, 100_000)
	for i := range devices {
		devices[i] = []string{fmt.Sprintf("%08x", i*2654435)}
	}
	memories := []struct {
		name     string
		requests int
	}{{"without", 0}, {"all", 10_000_000}, {"share", 100_000}}
	for outcome, limit := range map[string]string{"allowed": "1000000000", "refused": "0"} {
		b.Run(outcome, func(b *testing.B) {
			var handlers []http.Handler
			for _, of := range memories {
				var limiter *diana.Limiter
				m := (&history.Flags{Recent: of.requests, RecentActors: "hash"}).NewRing(func() *config.Config { return limiter.Config() })
				options := diana.Options{Logger: slog.New(slog.DiscardHandler)}
				m.Observe(&options)
				c, err := command.Vocabulary().Parse("bench.yaml", fmt.Appendf(nil, text, limit))
				if err != nil {
					b.Fatal(err)
				}
				if limiter, err = options.New(c); err != nil {
					b.Fatal(err)
				}
				defer limiter.Close()
				handlers = append(handlers, m.Filter(limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))))
			}
			w := &discard{header: http.Header{}}
			r := httptest.NewRequest(http.MethodGet, "/api/orders", nil)
			send := func(h http.Handler, n int) time.Duration {
				began := time.Now()
				for range n {
					r.Header["X-Device-Id"] = devices[rand.IntN(len(devices))]
					clear(w.header)
					h.ServeHTTP(w, r)
				}
				return time.Since(began)
			}
			for _, h := range handlers {
				send(h, 400_000) // so that each ring is full, and has its share
			}
			took := make([]time.Duration, len(handlers))
			requests := 0
			for b.Loop() {
				for i, h := range handlers {
					took[i] += send(h, round)
				}
				requests += round
			}
			b.ReportMetric(0, "ns/op") // of a round: it says nothing
			for i, of := range memories {
				b.ReportMetric(float64(took[i].Nanoseconds())/float64(requests), "ns-"+of.name)
			}
		})
	}
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
