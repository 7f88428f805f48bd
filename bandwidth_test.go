// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
)

// wire is a ResponseWriter that records when it sent how many bytes. Bytes wait until they are
// flushed, as in a server's buffers.
type wire struct {
	header  http.Header
	start   time.Time
	waiting int
	sent    []sent

	mu  *sync.Mutex // guards all
	all *[]sent     // of all that share it
}

type sent struct {
	at time.Duration
	n  int
}

func newWire() *wire { return &wire{header: http.Header{}, start: time.Now()} }

func (w *wire) Header() http.Header { return w.header }
func (w *wire) WriteHeader(int)     {}
func (w *wire) Write(b []byte) (int, error) {
	w.waiting += len(b)
	return len(b), nil
}

func (w *wire) Flush() {
	s := sent{time.Since(w.start), w.waiting}
	w.waiting = 0
	w.sent = append(w.sent, s)
	if w.mu != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.all = append(*w.all, s)
	}
}

// smooth fails if the bytes of some interval exceed the rate by more than a quarter of a second's worth.
// It returns the number of all bytes.
func smooth(t *testing.T, list []sent, rate int) (total int) {
	t.Helper()
	least := math.Inf(1) // of what was sent before a moment, less what the rate allows until then
	for _, s := range list {
		allowed := float64(rate) * s.at.Seconds()
		least = min(least, float64(total)-allowed)
		total += s.n
		if over := float64(total) - allowed - least - float64(rate)/4; over > 0.01 {
			t.Fatalf("at %v %.0f bytes too much in some interval", s.at, over)
		}
	}
	return total
}

// answered serves a request to w whose handler is h.
func answered(l *diana.Limiter, w *wire, r *http.Request, h http.HandlerFunc) {
	l.Handler(h).ServeHTTP(w, r)
	w.Flush() // as the server does
}

func get(path string) *http.Request { return httptest.NewRequest("GET", path, nil) }

// TestBandwidth sends bytes evenly, loses none, and takes as long as the rate says, whatever pieces
// a handler writes.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{
		"{url: /, bandwidth: %d}",
		"{url: /, bandwidth: {rate: %d, actor: device}}",
		"[{url: /, bandwidth: 900m}, {url: /x, bandwidth: %d}, {url: /x/y, bandwidth: {rate: 100m, actor: all}}]",
		"[{url: /, bandwidth: 900m}, {url: /x, bandwidth: {rate: %d, actor: [ip, device]}}, {url: /x/y, bandwidth: 100m}]",
	} {
		for _, rate := range []int{1000, 12_345, 100_000, 5_000_000} {
			for name, pieces := range map[string]func(int) int{
				"at once":  func(left int) int { return left },
				"bytes":    func(int) int { return max(rate/2000, 1) },
				"random":   func(left int) int { return rand.IntN(min(left, rate)) + 1 },
				"4096":     func(int) int { return 4096 },
				"a second": func(int) int { return rate },
			} {
				synctest.Test(t, func(t *testing.T) {
					l := limiter(t, fmt.Sprintf(yaml, rate))
					w, size := newWire(), 3*rate
					answered(l, w, get("/x/y"), func(w http.ResponseWriter, _ *http.Request) {
						body := make([]byte, size)
						for len(body) > 0 {
							n := min(pieces(len(body)), len(body))
							if k, err := w.Write(body[:n]); k != n || err != nil {
								t.Fatal(k, err)
							}
							body = body[n:]
						}
					})
					if got := smooth(t, w.sent, rate); got != size {
						t.Errorf("%s: %d bytes were sent, want %d", name, got, size)
					}
					if took := w.sent[len(w.sent)-1].at.Seconds(); took < 2.75 || took > 3 {
						t.Errorf("%s at %d: took %.2f s, want 2.8 to 3", name, rate, took)
					}
				})
			}
		}
	}
}

// TestBandwidthOfSlowHandler does not let a handler that pauses catch up later.
func TestBandwidthOfSlowHandler(t *testing.T) {
	t.Parallel()
	const rate = 100_000
	for _, yaml := range []string{"{url: /, bandwidth: 100k}", "{url: /, bandwidth: {rate: 100k, actor: ip}}"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			answered(limiter(t, yaml), w, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for range 500 {
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
					_, _ = w.Write(make([]byte, rnd.IntN(rate/2)))
					if rnd.IntN(2) == 0 {
						w.(http.Flusher).Flush()
					}
				}
			})
			smooth(t, w.sent, rate)
		})
	}
}

// TestBandwidthShared has the responses to one actor share a rate, evenly. Other actors have their
// own.
func TestBandwidthShared(t *testing.T) {
	t.Parallel()
	const rate, size, answers = 100_000, 100_000, 5
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /, bandwidth: {rate: 100k, actor: device}}")
		began := time.Now()
		var wg sync.WaitGroup
		for _, device := range []string{"a", "b", "c"} {
			var mu sync.Mutex
			var all []sent
			var own sync.WaitGroup
			for range answers {
				own.Go(func() {
					w := newWire()
					w.mu, w.all = &mu, &all
					r := get("/")
					r.Header.Set("X-Device-Id", device)
					answered(l, w, r, func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", size)))
					})
					if took := time.Since(began).Seconds(); took < 3 {
						t.Errorf("one of %d answers took %.2f s, want it to share", answers, took)
					}
				})
			}
			wg.Go(func() {
				own.Wait()
				if got := smooth(t, all, rate); got != size*answers {
					t.Errorf("%d bytes were sent, want %d", got, size*answers)
				}
				if took := time.Since(began).Seconds(); took < 4.75 || took > 5 {
					t.Errorf("%d answers took %.2f s, want 4.8", answers, took)
				}
			})
		}
		wg.Wait()
	})
}

// TestBandwidthOfDisconnectedClient refunds what a client that disconnects has reserved, and does not wait for it.
func TestBandwidthOfDisconnectedClient(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{"{url: /, bandwidth: 10k}", "{url: /, bandwidth: {rate: 10k, actor: all}}"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, yaml)
			began := time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					w := newWire()
					answered(l, w, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
						n, err := w.Write(make([]byte, 1_000_000))
						if n == 1_000_000 || err == nil {
							t.Errorf("wrote %d bytes, %v", n, err)
						}
					})
					if took := time.Since(began); took > time.Second {
						t.Errorf("an answer went on for %v", took)
					}
				})
			}
			wg.Wait()
			w := newWire()
			answered(l, w, get("/"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10_000)) })
			if took := time.Since(began).Seconds(); took > 2.1 {
				t.Errorf("after the others had left, a second's worth was there after %.2f s, want 2", took)
			}
		})
	}
}

// TestBandwidthOfOthers does not slow refusals, responses to HEAD, and other paths.
func TestBandwidthOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /x, bandwidth: 1k, rules: [{rpu: 1, unit: day}]}")
		began := time.Now()
		large := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1_000_000)) }
		answered(l, newWire(), get("/y"), large)
		answered(l, newWire(), httptest.NewRequest("HEAD", "/x", nil), large)
		answered(l, newWire(), get("/x"), large) // refused
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}

// TestBandwidthReloaded keeps the rate of responses that have begun. New ones have the new rate.
func TestBandwidthReloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := t.TempDir() + "/diana.yaml"
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("{url: /, bandwidth: {rate: 10k, actor: all}}")
		l, err := quiet.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		body := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 50_000)) }
		first := newWire()
		var wg sync.WaitGroup
		wg.Go(func() { answered(l, first, get("/"), body) })
		time.Sleep(time.Second)
		write("{url: /, bandwidth: {rate: 1m, actor: all}}")
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answered(l, newWire(), get("/"), body)
		if took := time.Since(began); took > time.Second {
			t.Errorf("an answer after the reload took %v", took)
		}
		write("{url: /, rules: [{rpu: 1}]}")
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := smooth(t, first.sent, 10_000); got != 50_000 {
			t.Errorf("the first answer had %d bytes", got)
		}
	})
}

// TestBandwidthThroughServer does all that a response can do, with a bandwidth, in a real server.
func TestBandwidthThroughServer(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, bandwidth: 400k, rules: [{rpu: 1000, charge: [401]}]}")
	body := bytes.Repeat([]byte("0123456789"), 20_000) // half a second's worth
	text := string(body)
	handlers := map[string]http.HandlerFunc{
		"/write": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) },
		"/copy": func(w http.ResponseWriter, _ *http.Request) {
			n, err := io.Copy(w, struct{ io.Reader }{bytes.NewReader(body)})
			if n != int64(len(body)) || err != nil {
				t.Error(n, err)
			}
		},
		"/content": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.txt", time.Time{}, bytes.NewReader(body))
		},
		"/trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(body)
			w.Header().Set("X-Sum", "7")
		},
		"/flush": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write(body[:1])
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body[1:])
		},
		"/controller": func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, text)
		},
	}
	for _, proto := range []int{1, 2} {
		server := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers[r.URL.Path](w, r)
		})))
		server.EnableHTTP2 = proto == 2
		server.StartTLS()
		defer server.Close()
		var wg sync.WaitGroup
		for path := range handlers {
			wg.Go(func() {
				began := time.Now()
				r, err := server.Client().Get(server.URL + path)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.Equal(got, body) || r.ProtoMajor != proto {
					t.Errorf("HTTP/%d %s: %d bytes, %v", proto, path, len(got), err)
				}
				if path == "/trailer" && r.Trailer.Get("X-Sum") != "7" {
					t.Errorf("HTTP/%d: trailer %v", proto, r.Trailer)
				}
				if path == "/content" && r.Header.Get("Content-Length") == "" {
					t.Errorf("HTTP/%d: %v", proto, r.Header)
				}
				if took := time.Since(began); took < 250*time.Millisecond {
					t.Errorf("HTTP/%d %s: took %v", proto, path, took)
				}
			})
		}
		wg.Wait()
	}
}

// TestBandwidthOfSmallResponse sends a small response as without a bandwidth: at once, with its length.
func TestBandwidthOfSmallResponse(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, bandwidth: 100k}")
	server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, "0123456789")
		}
		w.Header().Set("X-Late", "x")
	})))
	defer server.Close()
	r, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.ContentLength != 1000 || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" || r.Header.Get("X-Late") != "" {
		t.Errorf("length %d, %v", r.ContentLength, r.Header)
	}
}

// TestAbilities compares the optional interfaces of the ResponseWriter of a watched response with those
// of the one in front of the limiter.
func TestAbilities(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{"{url: /, bandwidth: 100k}", "{url: /, rules: [{rpu: 1000, charge: [401]}]}"} {
		for _, proto := range []int{1, 2} {
			abilities := func(w http.ResponseWriter) string {
				_, flush := w.(http.Flusher)
				_, hijack := w.(http.Hijacker)
				_, push := w.(http.Pusher)
				_, notify := w.(interface{ CloseNotify() <-chan bool })
				c := http.NewResponseController(w)
				return fmt.Sprint(flush, hijack, push, notify, c.SetReadDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex() == nil)
			}
			var without, with string
			h := limiter(t, yaml).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { with = abilities(w) }))
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				without = abilities(w)
				h.ServeHTTP(w, r)
			}))
			server.EnableHTTP2 = proto == 2
			server.StartTLS()
			defer server.Close()
			r, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if with != without || with == "" {
				t.Errorf("HTTP/%d, %s: %s, want %s", proto, yaml, with, without)
			}
		}
	}
}
