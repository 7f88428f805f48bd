// SPDX-License-Identifier: MIT

package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
)

// An answer of the upstream is slowed, complete, and keeps its trailers. An upgraded connection is
// not slowed. The status of the upstream decides which rules charge the request.
func TestSlowed(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789", 20_000)
	r := start(t, `
- {url: /, bandwidth: 400k}
- {url: /login, rules: [{algo: W, unit: day, rpu: 2, charge: [401]}]}
- {url: /chat, bandwidth: 1k}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chat":
			echoWebSocket(w, r)
		case "/login":
			if r.URL.RawQuery == "wrong" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		default:
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, body)
			w.Header().Set("X-Sum", "7")
		}
	}))
	began := time.Now()
	if a := r.get("/file"); a.Body != body || a.Trailer.Get("X-Sum") != "7" {
		t.Errorf("%d bytes, trailer %v", len(a.Body), a.Trailer)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("half a second's worth took %v", took)
	}
	for i, row := range []struct {
		query string
		want  int
	}{{"", 200}, {"", 200}, {"wrong", 401}, {"", 200}, {"wrong", 401}, {"", 503}} {
		if a := r.get("/login?" + row.query); a.Status != row.want {
			t.Errorf("login %d: %d, want %d", i, a.Status, row.want)
		}
	}
	began = time.Now()
	ws, _ := r.dial("/chat")
	text := strings.Repeat("x", 20_000) // 20 s of the bandwidth
	if got := echoed(t, ws, text); got != text {
		t.Errorf("%d bytes came back", len(got))
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a WebSocket was slowed: %v", took)
	}
}

// bodyOf is an upstream that answers with a body of this length.
type bodyOf int64

// RoundTrip implements http.RoundTripper.
func (n bodyOf) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.NopCloser(strings.NewReader(strings.Repeat("x", int(n))))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(n), Body: body, Request: r}, nil
}

// writes is a ResponseWriter that records how many bytes each Write has.
type writes struct {
	header http.Header
	sizes  []int
}

func (w *writes) Header() http.Header { return w.header }
func (w *writes) WriteHeader(int)     {}
func (w *writes) Flush()              {}
func (w *writes) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return len(b), nil
}

// An answer with a bandwidth leaves in whole pieces, with one write for each. A piece is what the
// bandwidth allows in 225 ms. The time is real: ReverseProxy waits for a mutex, which stops fake time.
func TestSlowedInWholePieces(t *testing.T) {
	t.Parallel()
	for text, piece := range map[string]int{
		"{url: /, bandwidth: 100k}":                     22_500,
		"{url: /, bandwidth: {rate: 100k, actor: all}}": 22_500,
	} {
		c, err := command.Vocabulary().Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		limiter, err := diana.Options{Logger: logger}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		to := &url.URL{Scheme: "http", Host: "upstream"}
		proxy := upstream.NewProxy(to, false, bodyOf(2*piece), time.Minute, limiter.Config, upstream.NewUpgrades(nil, logger), logger)
		w := &writes{header: http.Header{}}
		limiter.Handler(proxy).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if want := []int{piece, piece}; !slices.Equal(w.sizes, want) {
			t.Errorf("%s: writes of %v bytes, want %v", text, w.sizes, want)
		}
	}
}
