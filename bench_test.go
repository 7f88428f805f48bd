// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
