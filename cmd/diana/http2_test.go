// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/testproc"
)

// h2cClient returns a client that speaks HTTP/2 without TLS.
func h2cClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// plainStatus sends a POST request, and returns the status and the content type of the answer.
func plainStatus(t *testing.T, url string, http2 bool, contentType string) (int, string) {
	t.Helper()
	client := http.DefaultClient
	if http2 {
		client = h2cClient(t)
	}
	answer, err := client.Post(url, contentType, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("Content-Type")
}

// frames is a client of HTTP/2 that sends and reads frames as a test says.
type frames struct {
	*http2.Framer
	conn      net.Conn
	t         *testing.T
	authority string // of the requests
	header    bytes.Buffer
	hpack     *hpack.Encoder

	decoder *hpack.Decoder
	events  map[uint32][]string // the statuses of a stream's answers, and "reset"
}

// dialFrames opens a connection with these settings.
func dialFrames(t *testing.T, url string, settings ...http2.Setting) *frames {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := &frames{Framer: http2.NewFramer(conn, conn), conn: conn, t: t, authority: "here", decoder: hpack.NewDecoder(4096, nil), events: map[uint32][]string{}}
	f.hpack = hpack.NewEncoder(&f.header)
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return f
}

// request sends the header of a request.
func (f *frames) request(stream uint32, method, path string, end bool) {
	f.t.Helper()
	f.header.Reset()
	for _, field := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", f.authority}, {":path", path}} {
		_ = f.hpack.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.header.Bytes(), EndHeaders: true, EndStream: end}); err != nil {
		f.t.Fatal(err)
	}
}

// await reads frames until a stream has this status, or is "reset". It grants no window to any stream.
func (f *frames) await(stream uint32, event string) {
	f.t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(testproc.Patience))
	for !slices.Contains(f.events[stream], event) {
		frame, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("stream %d: %v, and no %s among %v", stream, err, event, f.events)
		}
		at := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			fields, err := f.decoder.DecodeFull(frame.HeaderBlockFragment())
			if err != nil {
				f.t.Fatal(err)
			}
			f.events[at] = append(f.events[at], fields[0].Value)
		case *http2.RSTStreamFrame:
			f.events[at] = append(f.events[at], "reset")
		}
	}
}

// Slow streams of one connection are cut off, and free their slots. The other streams of the connection live.
func TestSlowStreams(t *testing.T) {
	t.Parallel()
	var inside atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		switch r.URL.Path {
		case "/slow/body":
			exchange.ReadsAll(w, r)
		case "/slow/endless":
			exchange.Endless(w, r)
		case "/small":
			_, _ = io.WriteString(w, "small")
		case "/slow/stream": // idle until the client leaves
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(upstream.Close)
	g := serve(t, "url: /slow\nrules: [{name: few, algo: C, rpu: 4}]", upstream.URL, "--h2c", "--read-timeout", "1s", "--write-timeout", "1s")
	next := func() int {
		answer, err := http.Get(g.url + "/slow")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	// No stream may send anything, unless the test grants it a window.
	f := dialFrames(t, g.url, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	f.request(1, "GET", "/slow/stream", true)
	f.request(3, "POST", "/slow/body", false)
	_ = f.WriteData(3, false, []byte("half"))
	f.request(5, "GET", "/slow/endless", true)
	f.request(7, "GET", "/slow/endless", true)
	f.request(9, "GET", "/small", true)
	testproc.Eventually(t, func() bool { return inside.Load() == 5 })
	if status := next(); status != 503 {
		t.Error("a fifth request gets", status)
	}
	f.await(3, "408")
	f.await(5, "reset")
	f.await(7, "reset")
	f.await(9, "reset")
	if !testproc.Becomes(func() bool { return next() == 200 }) {
		t.Fatal("no slot is ever free again")
	}
	f.request(11, "GET", "/slow/stream", true) // the connection is alive
	f.await(11, "200")
	if slices.Contains(f.events[1], "reset") {
		t.Error("an idle stream is reset")
	}
}

// A client that reads nothing at all from its connection is cut off too.
func TestSlowConnectionOfStreams(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{}, 10)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			inside <- struct{}{}
			exchange.Endless(w, r)
		}
	}))
	t.Cleanup(upstream.Close)
	g := serve(t, exchange.FewSlots, upstream.URL, "--h2c", "--read-timeout", "1s", "--write-timeout", "1s")
	f := dialFrames(t, g.url, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = f.WriteWindowUpdate(0, 1<<30)
	for i := range uint32(4) {
		f.request(2*i+1, "GET", "/endless", true)
		<-inside
	}
	if !testproc.Becomes(func() bool {
		answer, err := http.Get(g.url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode == 200
	}) {
		t.Fatal("no slot is ever free again")
	}
}

// Many streams of few connections get exactly the limit.
func TestStreamsAreExact(t *testing.T) {
	t.Parallel()
	const limit, clients, requests = 300, 64, 10
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	t.Cleanup(upstream.Close)
	g := serve(t, fmt.Sprintf("url: /\nrules: [{name: few, rpu: %d, unit: day, algo: W, align: first}]", limit), upstream.URL, "--h2c")
	client := h2cClient(t)
	var load sync.WaitGroup
	var allowed, refused atomic.Int64
	for range clients {
		load.Go(func() {
			for range requests {
				answer, err := client.Get(g.url)
				if err != nil {
					t.Error(err)
					continue
				}
				body, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				switch {
				case answer.StatusCode == 200 && string(body) == "here":
					allowed.Add(1)
				case answer.StatusCode == 503 && len(body) > 0:
					refused.Add(1)
				default:
					t.Error(answer.StatusCode, string(body))
				}
			}
		})
	}
	load.Wait()
	if allowed.Load() != limit || refused.Load() != clients*requests-limit {
		t.Errorf("%d allowed and %d refused", allowed.Load(), refused.Load())
	}
}
