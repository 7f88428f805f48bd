// SPDX-License-Identifier: MIT

package compat

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// raw sends requests and reads responses without a change of coding.
var raw = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}}

// ask sends a request with a key, and returns the response. The caller closes its body.
func ask(t *testing.T, host, path, key, body string, fields ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := raw.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// randomRequest returns a path and a request that the provider answers at once.
func randomRequest(rnd *rand.Rand) (path, body string) {
	path = []string{chatPath, messagesPath}[rnd.IntN(2)]
	return path, fmt.Sprintf(`{"model": "small", "max_tokens": %d, "stream": %v, "stream_options": {"include_usage": %v}, "messages": [{"role": "user", "content": %q}]}`,
		1+rnd.IntN(200), rnd.IntN(2) == 0, rnd.IntN(2) == 0, strings.Repeat("z", rnd.IntN(300)))
}

// recorder passes requests on to an upstream, and records the body of the last response. The gzip of nginx
// depends on the time, so two responses of nginx can differ.
type recorder struct {
	host string
	mu   sync.Mutex
	body bytes.Buffer // of the last response
	head http.Header
}

func (c *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u := &url.URL{Scheme: "http", Host: c.host}
	c.mu.Lock()
	c.body.Reset()
	c.mu.Unlock()
	text, _ := io.ReadAll(r.Body) // ReverseProxy fails if a response begins while it still reads
	r.Body = io.NopCloser(bytes.NewReader(text))
	(&httputil.ReverseProxy{
		Transport: raw.Transport,
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(u) },
		ModifyResponse: func(answer *http.Response) error {
			c.head = answer.Header.Clone()
			answer.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(answer.Body, c), answer.Body}
			return nil
		},
	}).ServeHTTP(w, r)
}

// Write records bytes.
func (c *recorder) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.Write(p)
}

// TestTokensBytes: no byte of a body differs from what the provider has sent, whatever its coding.
func TestTokensBytes(t *testing.T) {
	host := provider(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, from := range map[string]string{"direct": host, "gzip of nginx": compressing(t, host)} {
		sent := &recorder{host: from}
		server := httptest.NewServer(sent)
		t.Cleanup(server.Close)
		g := serveTokens(t, server.Listener.Addr().String(), rules(""))
		total := 0
		for i := range 300 {
			path, body := randomRequest(rnd)
			coding := []string{"gzip", "identity"}[i%2]
			answer := ask(t, g.host, path, "bytes", body, "Accept-Encoding", coding)
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatal(answer.Status, err)
			}
			sent.mu.Lock()
			if !bytes.Equal(text, sent.body.Bytes()) {
				t.Errorf("%s: the response to %s is\n%q, sent was\n%q", name, body, text, sent.body.Bytes())
			}
			for _, field := range []string{"Content-Type", "Content-Encoding", "Content-Length", "Vary"} {
				if got, want := answer.Header.Get(field), sent.head.Get(field); got != want {
					t.Errorf("%s: %s is %q, sent was %q", name, field, got, want)
				}
			}
			sent.mu.Unlock()
			total += len(text)
		}
		t.Logf("%s: 300 responses with %d bytes are equal", name, total)
	}
}

// TestTokensFirstByte measures the time until the first event of a stream, with and without Diana.
func TestTokensFirstByte(t *testing.T) {
	if !*allServers {
		t.Skip("only with -all")
	}
	host := provider(t)
	g := serveTokens(t, host, rules(""))
	const body = `{"model": "small", "stream": true, "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}`
	var times [2][]time.Duration
	for range 1000 {
		for k, host := range []string{host, g.host} {
			began := time.Now()
			answer := ask(t, host, chatPath, "latency", body)
			if _, err := io.ReadFull(answer.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			times[k] = append(times[k], time.Since(began))
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
	for k := range times {
		slices.Sort(times[k])
	}
	without, with := times[0][500], times[1][500]
	t.Logf("median first byte: %v without Diana, %v with it, ratio %.2f; behind a model that takes 300ms for its first token, %.4f",
		without, with, float64(with)/float64(without), float64(with+300*time.Millisecond)/float64(without+300*time.Millisecond))
	t.Logf("99 %%: %v and %v", times[0][990], times[1][990])
}
