// SPDX-License-Identifier: MIT

package upstream

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/config"
)

// slowEnd is a body without a byte that ends late, as on a busy machine.
type slowEnd struct{}

func (slowEnd) Read([]byte) (int, error) {
	time.Sleep(2 * flushWithin)
	return 0, io.EOF
}

func (slowEnd) Close() error { return nil }

// roundTrip is a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An answer with a status of gRPC in its header ends with the header, so the header waits for the end.
func TestStatusInHeaderIsNotFlushed(t *testing.T) {
	t.Parallel()
	for field, flushed := range map[string]bool{"Grpc-Status": false, "X-Other": true} {
		synctest.Test(t, func(t *testing.T) {
			logger := slog.New(slog.DiscardHandler)
			proxy := NewProxy(&url.URL{Scheme: "http", Host: "upstream"}, false, roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{field: {"9"}}, Body: slowEnd{}, Request: r}, nil
			}), time.Minute, func() *config.Config { return &config.Config{} }, NewUpgrades(nil, logger), logger)
			w := httptest.NewRecorder()
			proxy.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if w.Flushed != flushed || w.Header().Get(field) != "9" {
				t.Errorf("%s: flushed %v, header %v", field, w.Flushed, w.Header())
			}
		})
	}
}
