// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
)

// BenchmarkHandler is three local rules (all, ip, device) out of a thousand URLs, and
// the bare handler behind them.
func BenchmarkHandler(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	run := func(name string, h http.Handler) {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/api/v500/orders", nil)
			r.Header.Set("X-Device-Id", "0a1b2c3d")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	run("bare", bare)
	for _, urls := range []int{10, 1000, 10000} {
		for _, headers := range []bool{false, true} {
			var yaml strings.Builder
			fmt.Fprintf(&yaml, "response: {headers: %v}\nlimits:\n", headers)
			for i := range urls {
				fmt.Fprintf(&yaml, "- {url: /api/v%d, rules: [{rpu: 1000000000}]}\n", i)
			}
			yaml.WriteString("- {url: '/api/{any}/orders', rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, rpu: 1000000000}]}\n")
			if yaml.Len() > 500_000 {
				continue
			}
			run(fmt.Sprintf("urls=%d,fields=%v", urls, headers), limiter(b, yaml.String()).Handler(bare))
		}
	}
}

// BenchmarkRefusal measures refusals of one actor that floods, and of many actors one after another.
func BenchmarkRefusal(b *testing.B) {
	l := limiter(b, "url: /\nrules: [{actor: device, unit: day, rpu: 1}]")
	devices := make([]map[string]string, 10_000)
	for i := range devices {
		devices[i] = map[string]string{"device": fmt.Sprintf("device-%d", i)}
	}
	for _, actors := range []int{1, len(devices)} {
		for i := range actors { // each has consumed its one request
			count(b, l, 1, diana.Request{Path: "/", Actors: devices[i]})
		}
		b.Run(fmt.Sprintf("actors=%d", actors), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					d, err := l.Take(context.Background(), diana.Request{Path: "/", Actors: devices[i%actors]})
					if err != nil || d.Allowed {
						b.Fatal(d.Allowed, err)
					}
					d.Done()
				}
			})
		})
	}
}

// BenchmarkTake is a decision under local rules: by one actor under one rule and under three, and
// of a request that no rule covers.
func BenchmarkTake(b *testing.B) {
	l := limiter(b, `
- {url: /one, rules: [{actor: account, rpu: 1000000000}]}
- {url: /none, rules: [{actor: account, rpu: 0}]}
- {url: /three, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: account, rpu: 1000000000}]}
`)
	for _, path := range []string{"/one", "/none", "/three", "/uncovered"} {
		b.Run(path[1:], func(b *testing.B) {
			r := diana.Request{Path: path, Actors: map[string]string{"account": "ann", "ip": "192.0.2.1"}}
			b.ReportAllocs()
			for b.Loop() {
				d, err := l.Take(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				d.Done()
			}
		})
	}
}
