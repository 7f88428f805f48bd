// SPDX-License-Identifier: MIT

package gateway

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
)

// BenchmarkGateway sends a request through the gateway to an upstream, over sockets of this
// machine. The figure includes the client and the upstream.
func BenchmarkGateway(b *testing.B) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "body")
	}))
	defer behind.Close()
	c, err := command.Vocabulary().Parse("bench.yaml", []byte(generous))
	if err != nil {
		b.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	limiter, err := diana.Options{Logger: logger}.New(c)
	if err != nil {
		b.Fatal(err)
	}
	defer limiter.Close()
	to, _ := url.Parse(behind.URL)
	last, _ := (&upstream.Flags{URLs: []*url.URL{to}}).Proxy(usualTimeouts.Timeouts, limiter.Config, upstream.NewUpgrades(nil, logger), logger)
	g := assembled(limiter, last, usualTimeouts, logger)
	if err := g.listen(listenAt{requests: "127.0.0.1:0", admin: "127.0.0.1:0"}); err != nil {
		b.Fatal(err)
	}
	go func() { _ = g.Run(b.Context(), nil, func() {}) }()
	for _, size := range []int{0, 1000, 1_000_000} {
		name, method := "GET", http.MethodGet
		if size > 0 {
			name, method = fmt.Sprintf("POST/%d", size), http.MethodPost
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			body := make([]byte, size)
			for b.Loop() {
				request, _ := http.NewRequest(method, "http://"+g.open[0].Addr().String(), bytes.NewReader(body))
				response, err := http.DefaultTransport.RoundTrip(request)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
}
