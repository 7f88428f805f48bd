// SPDX-License-Identifier: MIT

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/certificate"
	"github.com/diana-limiter/diana/cmd/diana/internal/clientconn"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/internal/testproc"
)

// pipes is a listener whose connections are in memory, so that they have the fake time of a
// testing/synctest bubble. They have no buffer: a write is pending until the other side reads.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// bubble is a gateway and its upstream in fake time.
type bubble struct {
	*testing.T
	clients *pipes
	log     testproc.Buffer
}

// inBubble runs a test with a gateway in fake time. An upstream with the path /ok answers at once.
func inBubble(t *testing.T, text string, answers http.HandlerFunc, test func(b *bubble)) {
	t.Helper()
	inBubbleOver(t, false, text, answers, test)
}

// inBubbleOver is inBubble with a gateway that accepts HTTP/2 too, or does not.
func inBubbleOver(t *testing.T, http2 bool, text string, answers http.HandlerFunc, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, clients: newPipes()}
		c, err := command.Vocabulary().Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.NewTextHandler(&b.log, nil))
		limiter, err := diana.Options{Vocabulary: command.Vocabulary(), Logger: logger}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()

		behind := newPipes()
		transport := upstream.NewTransport(usualTimeouts.Timeouts)
		transport.Dial = func(string, string) (net.Conn, error) { return behind.dial() } //nolint:staticcheck // the context is not needed
		transport.DialContext = nil
		mux := http.NewServeMux()
		mux.HandleFunc("/", answers)
		mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
		server := &http.Server{Handler: mux}
		to := &url.URL{Scheme: "http", Host: "upstream"}
		last := upstream.NewProxy(to, false, transport, usualTimeouts.Upstream, limiter.Config, upstream.NewUpgrades(nil, logger), logger)
		g := assemble(partsOf(&Flags{Timeouts: usualTimeouts, TLS: certificate.Flags{H2C: http2}}, limiter, last, logger))

		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(behind) })
		serving.Go(func() { _ = g.server.Serve(clientconn.Listener(b.clients, usualTimeouts.Write)) })
		defer serving.Wait()
		defer server.Close()
		defer transport.CloseIdleConnections()
		defer g.server.Close()
		defer g.cut()
		test(b)
		if t.Failed() {
			t.Log(b.log.String())
		}
	})
}

// slowClient is one end of a connection to the gateway.
type slowClient struct {
	net.Conn
	b      *bubble
	reader *bufio.Reader
}

// connect opens a connection to the gateway and sends a text, with "Host" behind the first line.
func (b *bubble) connect(text string) *slowClient {
	b.Helper()
	conn, err := b.clients.dial()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	c := &slowClient{conn, b, bufio.NewReader(conn)}
	c.send(strings.Replace(text, "\r\n", "\r\nHost: here\r\n", 1))
	return c
}

func (c *slowClient) send(text string) {
	c.b.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.b.Errorf("sending %q: %v", text, err)
	}
}

// line reads a line of the answer; "" if the connection is closed.
func (c *slowClient) line() string {
	c.b.Helper()
	line, err := c.reader.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		c.b.Error(err)
	}
	return strings.TrimSpace(line)
}

// answer reads an answer, and whether it is whole.
func (c *slowClient) answer() (status int, body string, whole bool) {
	c.b.Helper()
	a, err := http.ReadResponse(c.reader, nil)
	for err == nil && a.StatusCode < 200 {
		a, err = http.ReadResponse(c.reader, nil)
	}
	if err != nil {
		return 0, "", false
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err == nil
}

// want fails the test unless a new client gets this status.
func (b *bubble) want(status int) {
	b.Helper()
	c := b.connect("GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n")
	if got, body, _ := c.answer(); got != status {
		b.Errorf("at %v: %d, want %d: %s", time.Now().UTC(), got, status, body)
	}
	c.Close()
}

// Clients that stop sending or reading are cut off, and their slots are free.
func TestSlowClientsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	const post = "POST / HTTP/1.1\r\n"
	for _, test := range []struct {
		name     string
		text     string
		upstream http.HandlerFunc
		second   bool // the client has got another answer on this connection
		reads    bool // the client reads the beginning of the answer
		status   int  // that it gets in the end; 0: none
	}{
		{name: "no body", text: post + "Content-Length: 9\r\n\r\n", status: 408},
		{name: "half a body", text: post + "Content-Length: 9\r\n\r\nhalf", status: 408},
		{name: "HTTP/1.0", text: "POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\nhalf", status: 408},
		{name: "no chunk", text: post + "Transfer-Encoding: chunked\r\n\r\n", status: 408},
		{name: "half a chunk", text: post + "Transfer-Encoding: chunked\r\n\r\n8\r\nhalf", status: 408},
		{name: "no end", text: post + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n", status: 408},
		{name: "half a trailer", text: post + "Trailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: b", status: 408},
		{name: "no body, upgrade", text: "POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 9\r\n\r\n", status: 408},
		{name: "reads a little", text: "GET / HTTP/1.1\r\n\r\n", upstream: exchange.Endless, reads: true},
		{name: "reads a little of a second answer", text: "GET / HTTP/1.1\r\n\r\n", upstream: exchange.Endless, second: true, reads: true},
		{name: "reads a little, HTTP/1.0", text: "GET / HTTP/1.0\r\n\r\n", upstream: exchange.Endless, reads: true},
		{name: "reads a little of a paced answer", text: "GET /paced HTTP/1.1\r\n\r\n", upstream: exchange.Endless, reads: true},
		{name: "does not read 100 Continue", text: post + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n", status: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.upstream == nil {
				test.upstream = exchange.ReadsAll
			}
			inBubble(t, "- {url: /, rules: [{name: few, algo: C, rpu: 4}]}\n- {url: /paced, bandwidth: 100k}", test.upstream, func(b *bubble) {
				clients := make([]*slowClient, 4)
				for i := range clients {
					text := test.text
					if test.second {
						text = "GET /ok HTTP/1.1\r\n\r\n"
					}
					c := b.connect(text)
					if test.second {
						_, _, _ = c.answer()
						c.send(strings.Replace(test.text, "\r\n", "\r\nHost: here\r\n", 1))
					}
					if test.reads {
						_, _ = c.reader.Peek(1)
					}
					clients[i] = c
				}
				time.Sleep(50 * time.Second)
				b.want(503)
				// One timeout until the client is cut off, and a few seconds: the transport waits
				// for 100 Continue, and a paced answer for its rate.
				time.Sleep(15 * time.Second)
				if test.status != 0 { // as long as it is pending the request is in flight
					for _, c := range clients {
						if status, _, _ := c.answer(); status != test.status {
							b.Errorf("status %d, want %d", status, test.status)
						}
					}
				}
				b.want(200)
			})
		})
	}
}

// The same timeout applies to a body that is read before its request joins a wait queue.
func TestSlowBodyBeforeTheQueue(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"{algo: LB, rpu: 1}", "{algo: W, unit: minute, rpu: 1, wait: 1m}"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			inBubble(t, "url: /slow\nrules: ["+rule+"]", exchange.ReadsAll, func(b *bubble) {
				c := b.connect("GET /slow HTTP/1.1\r\n\r\n")
				_, _, _ = c.answer()
				c = b.connect("POST /slow HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf")
				time.Sleep(time.Minute + time.Second)
				if line := c.line(); line != "HTTP/1.1 408 Request Timeout" {
					b.Errorf("%q", line)
				}
			})
		})
	}
}

// A connection that makes progress is not cut off, however long it takes.
func TestSlowClientsThatLive(t *testing.T) {
	t.Parallel()
	t.Run("upload", func(t *testing.T) {
		t.Parallel()
		for _, version := range []string{"1.0", "1.1"} {
			inBubble(t, exchange.FewSlots, exchange.ReadsAll, func(b *bubble) {
				c := b.connect("POST / HTTP/" + version + "\r\nContent-Length: 20\r\n\r\n")
				for range 20 {
					time.Sleep(50 * time.Second)
					c.send("x")
				}
				if status, body, whole := c.answer(); status != 200 || body != "20" || !whole {
					b.Error(status, body, whole)
				}
			})
		}
	})
	t.Run("upload in chunks", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, exchange.ReadsAll, func(b *bubble) {
			c := b.connect("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 5 {
				for _, piece := range []string{"2", "\r\n", "x", "x", "\r\n"} {
					time.Sleep(50 * time.Second)
					c.send(piece)
				}
			}
			c.send("0\r\n\r\n")
			if status, body, whole := c.answer(); status != 200 || body != "10" || !whole {
				b.Error(status, body, whole)
			}
		})
	})
	t.Run("upload after 100 Continue", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, exchange.ReadsAll, func(b *bubble) {
			c := b.connect("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
			if line := c.line(); line != "HTTP/1.1 100 Continue" {
				b.Errorf("%q", line)
			}
			for c.line() != "" {
			}
			time.Sleep(50 * time.Second)
			c.send("x")
			time.Sleep(50 * time.Second)
			c.send("x")
			if status, body, whole := c.answer(); status != 200 || body != "2" || !whole {
				b.Error(status, body, whole)
			}
		})
	})
	t.Run("idle stream", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Minute)
			}
		}, func(b *bubble) {
			for _, request := range []string{"GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "GET / HTTP/1.0\r\n\r\n"} {
				c := b.connect(request)
				if status, body, whole := c.answer(); status != 200 || strings.Count(body, "x") != 3 || !whole {
					b.Error(request, status, body, whole)
				}
			}
		})
	})
	t.Run("long polling", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(59 * time.Second)
			exchange.ReadsAll(w, r)
		}, func(b *bubble) {
			c := b.connect("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
			if status, body, whole := c.answer(); status != 200 || body != "1" || !whole {
				b.Error(status, body, whole)
			}
		})
	})
	t.Run("slow reader", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, func(w http.ResponseWriter, _ *http.Request) {
			// The proxy flushes the header in a goroutine. In a bubble, no time passes while that waits for the lock of a
			// write that a slow reader holds up.
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, strings.Repeat("x", 400_000))
		}, func(b *bubble) {
			c := b.connect("GET / HTTP/1.0\r\n\r\n")
			c.reader = bufio.NewReaderSize(c.reader, 4<<10)
			all := 0
			for piece := make([]byte, 4<<10); ; {
				n, err := c.reader.Read(piece)
				if all += n; err != nil {
					break
				}
				time.Sleep(5 * time.Second) // 0.8 kB a second
			}
			if all < 400_000 {
				b.Error(all, "bytes")
			}
		})
	})
	t.Run("upgraded connection", func(t *testing.T) {
		t.Parallel()
		inBubble(t, exchange.FewSlots, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(conn, rw)
		}, func(b *bubble) {
			c := b.connect("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			if line := c.line(); line != "HTTP/1.1 101 Switching Protocols" {
				b.Error(line)
			}
			for c.line() != "" {
			}
			for range 3 {
				time.Sleep(10 * time.Minute)
				c.send("hello\n")
				time.Sleep(10 * time.Minute) // the echo is pending
				if line := c.line(); line != "hello" {
					b.Errorf("%q", line)
				}
			}
			c.Close()
		})
	})
	t.Run("waits in a queue with an unread body", func(t *testing.T) {
		t.Parallel()
		inBubble(t, "url: /\nrules: [{algo: C, rpu: 1, wait: 5m}]", func(w http.ResponseWriter, r *http.Request) {
			exchange.ReadsAll(w, r)
			time.Sleep(50 * time.Second)
		}, func(b *bubble) {
			const text = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
			const rest = "1\r\nx\r\n0\r\n\r\n"
			var clients []*slowClient
			for range 4 {
				c := b.connect(text)
				go c.send(rest) // it is read when the request's time has come
				clients = append(clients, c)
				synctest.Wait()
			}
			for _, c := range clients {
				if status, body, whole := c.answer(); status != 200 || body != "1" || !whole {
					b.Error(status, body, whole)
				}
			}
		})
	})
}

// After a request with its own deadlines a connection has the usual ones again.
func TestNextRequestOnTheConnection(t *testing.T) {
	t.Parallel()
	inBubble(t, exchange.FewSlots, exchange.ReadsAll, func(b *bubble) {
		c := b.connect("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
		for i := range 4 {
			if status, body, whole := c.answer(); status != 200 || body != "1" || !whole {
				b.Error(i, status, body, whole)
			}
			time.Sleep(74 * time.Second)
			c.send("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n")
			time.Sleep(55 * time.Second)
			c.send("x")
		}
		_, _, _ = c.answer()
		c.send("GET /ok HTTP/1.1\r\n")
		before := time.Now()
		if line := c.line(); line != "" || time.Since(before) != 10*time.Second {
			b.Errorf("%q after %v, want an end after the header timeout", line, time.Since(before))
		}

		c = b.connect("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
		_, _, _ = c.answer()
		before = time.Now()
		if line := c.line(); line != "" || time.Since(before) != 75*time.Second {
			b.Errorf("%q after %v, want an end after the idle timeout", line, time.Since(before))
		}
	})
}

// A refused request whose body does not arrive has no slot, and its connection ends, too.
func TestRefusedWithoutItsBody(t *testing.T) {
	t.Parallel()
	inBubble(t, "url: /\nrules: [{rpu: 0}]", exchange.ReadsAll, func(b *bubble) {
		c := b.connect("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf")
		if status, _, whole := c.answer(); status != 503 || !whole {
			b.Error(status, whole)
		}
		if line := c.line(); line != "" {
			b.Errorf("%q", line)
		}
	})
}

// A request gets 504 if the upstream takes no more of its body, or does not answer.
func TestSlowUpstream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body int
		read int64
	}{
		"reads nothing":            {body: 100_000},
		"reads half of the body":   {body: 100_000, read: 50_000},
		"reads all of the body":    {body: 10, read: 10},
		"has no body to read":      {},
		"reads none of small body": {body: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, exchange.FewSlots, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, test.read)
				time.Sleep(2 * time.Minute) // it does not notice that the gateway has disconnected
			}, func(b *bubble) {
				c := b.connect(fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", test.body))
				go func() { _, _ = io.WriteString(c, strings.Repeat("x", test.body)) }()
				time.Sleep(time.Minute + time.Second)
				if line := c.line(); line != "HTTP/1.1 504 Gateway Timeout" {
					b.Errorf("%q", line)
				}
				_ = c.Close()
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// A slow client is not mistaken for a slow upstream, and an upstream may take a body slowly.
func TestSlowUpstreamThatLives(t *testing.T) {
	t.Parallel()
	inBubble(t, exchange.FewSlots, func(w http.ResponseWriter, r *http.Request) {
		all := 0
		for piece := make([]byte, 10_000); ; {
			n, err := r.Body.Read(piece)
			if all += n; err != nil {
				break
			}
			time.Sleep(10 * time.Second)
		}
		_, _ = fmt.Fprint(w, all)
	}, func(b *bubble) {
		c := b.connect("POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n")
		go func() {
			for range 20 {
				time.Sleep(40 * time.Second)
				c.send(strings.Repeat("x", 10_000))
			}
		}()
		if status, body, whole := c.answer(); status != 200 || body != "200000" || !whole {
			b.Error(status, body, whole)
		}
	})
}

// Streams that make progress, and streams that are idle after the answer has begun, are not cut off.
func TestSlowStreamsThatLive(t *testing.T) {
	t.Parallel()
	echoes := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
	}
	for name, upstream := range map[string]http.HandlerFunc{"upload": exchange.ReadsAll, "both ways": echoes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleOver(t, true, exchange.FewSlots, upstream, func(b *bubble) {
				pause, want := 50*time.Second, "5"
				if name == "both ways" {
					pause, want = 5*time.Minute, "xxxxx"
				}
				transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) { return b.clients.dial() }}
				transport.Protocols.SetUnencryptedHTTP2(true)
				defer transport.CloseIdleConnections()
				body, sends := io.Pipe()
				go func() {
					for range 5 {
						time.Sleep(pause)
						_, _ = io.WriteString(sends, "x")
					}
					_ = sends.Close()
				}()
				answer, err := (&http.Client{Transport: transport}).Post("http://gateway/", "text/plain", body)
				if err != nil {
					b.Fatal(err)
				}
				defer answer.Body.Close()
				if text, err := io.ReadAll(answer.Body); answer.StatusCode != 200 || string(text) != want || err != nil {
					b.Errorf("%d %q %v", answer.StatusCode, text, err)
				}
			})
		})
	}
}
