// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
	"github.com/diana-limiter/diana/internal/testproc"
)

// crew is a row of gateways, each of which takes over from the one before.
type crew struct {
	t     *testing.T
	file  string
	flags []string
	at    []string // addresses of the gateway, the administrators, --check and --grpc, or the first of these
}

// next starts a gateway with the flags of the crew, and waits until it serves.
func (c *crew) next() *served {
	c.t.Helper()
	s := &served{file: c.file}
	s.begin(c.t, c.flags...)
	for i, line := range s.lines(c.t, len(c.at)) {
		_, address, _ := strings.Cut(line, " on ")
		if c.at[i] == "" {
			c.at[i] = address
		}
		if c.at[i] != address {
			c.t.Fatalf("the next gateway listens at %s instead of %s", address, c.at[i])
		}
	}
	return s
}

// begin sends requests by one client until stop is closed. A request fails unless it is answered as it should be.
func (c *crew) begin(stop <-chan struct{}, load *sync.WaitGroup, sent *atomic.Int64, request func() error) {
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			sent.Add(1)
			if err := request(); err != nil {
				c.t.Error(err)
			}
		}
	})
}

// post sends a request that no client repeats by itself over HTTP/1.1, and that clients repeat over HTTP/2 only
// if the server says that it has not carried it out.
func post(client *http.Client, url string, http2 bool) error {
	body := io.Reader(strings.NewReader("a body"))
	if !http2 {
		body = struct{ io.Reader }{body}
	}
	answer, err := client.Post(url, "text/plain", body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 || string(text) != "a body" {
		return fmt.Errorf("%d %q %w", answer.StatusCode, text, err)
	}
	return nil
}

// A client whose request began before a hand-over does not know of it, so its connection stays open for the next one.
func TestHandoverOfARequestInFlight(t *testing.T) {
	t.Parallel()
	held, came := make(chan struct{}), make(chan struct{}, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-held
	}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	c := &crew{t: t, file: filepath.Join(dir, "diana.yaml"), at: make([]string, 2)}
	write(t, c.file, []byte("limits: []"))
	c.flags = []string{"--upstream", upstream.URL, "--listen", "127.0.0.1:0", "--handover", filepath.Join(dir, "handover.sock")}
	old := c.next()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.at[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read := bufio.NewReader(conn)
	closes := func() bool { // reads an answer, which tells whether the connection stays open
		t.Helper()
		answer, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer.Close
	}
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	_, _ = io.WriteString(conn, request)
	<-came
	next := c.next()
	handedOver := time.Now()
	time.Sleep(1500 * time.Millisecond) // most of the time for which the old process waits
	close(held)
	if closes() {
		t.Skip("the machine is too slow: the old process drains already")
	}
	time.Sleep(time.Second)
	_, _ = io.WriteString(conn, request)
	if !closes() {
		t.Errorf("%v after the hand-over, the connection stays open", time.Since(handedOver))
	}
	if err := old.cmd.Wait(); err != nil {
		t.Error(err)
	}
	next.stop(t)
}

func get(client *http.Client, url string) error {
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 {
		return fmt.Errorf("%s: %d %q %w", url, answer.StatusCode, text, err)
	}
	return nil
}

// Gateways take over from each other, and none of 10,000 requests fails. They share all listeners.
func TestHandover(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testHandover(t, false, 10_000) })
	t.Run("TLS", func(t *testing.T) { testHandover(t, true, 2_000) }) // each handshake takes time
}

func testHandover(t *testing.T, secure bool, requests int64) {
	const handovers = 3
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	c := &crew{t: t, file: filepath.Join(dir, "diana.yaml"), at: make([]string, 4)}
	write(t, c.file, []byte("url: /\nrules: [{rpu: 1000000}]"))
	c.flags = []string{"--upstream", upstream.URL, "--listen", "127.0.0.1:0", "--check", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
		"--handover", filepath.Join(dir, "handover.sock"), "--log-level", "warn"}
	creds := insecure.NewCredentials()
	if secure {
		files := writePair(t, dir, "first", inAnHour())
		c.flags = append(c.flags, "--tls-cert", files.cert, "--tls-key", files.key)
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	old := c.next()

	stop := make(chan struct{})
	var load sync.WaitGroup
	var sent atomic.Int64
	for i := range 8 {
		client := over(t, secure && i%2 == 0)
		c.begin(stop, &load, &sent, func() error { return post(client, c.at[0], secure && i%2 == 0) })
	}
	for _, url := range []string{c.at[0], c.at[1] + "/readyz", c.at[2] + "/check"} {
		fresh := over(t, false)
		fresh.Transport.(*http.Transport).DisableKeepAlives = true
		c.begin(stop, &load, &sent, func() error { return get(fresh, url) })
	}
	conn, err := grpc.NewClient("passthrough:"+c.at[3], grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.begin(stop, &load, &sent, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
		defer cancel()
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(false))
		return err
	})

	reaches := func(n int64) {
		t.Helper()
		if err := testproc.Poll(5*time.Minute, func() error { // a busy machine may take its time
			if sent.Load() < n {
				return io.ErrShortWrite
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(handovers) {
		reaches((i + 1) * requests / (handovers + 1))
		next := c.next()
		if err := old.cmd.Wait(); err != nil {
			t.Errorf("the process before ends with %v", err)
		}
		old = next
	}
	reaches(max(requests, sent.Load()+100))
	close(stop)
	load.Wait()
	t.Logf("%d requests during %d hand-overs", sent.Load(), handovers)
}

// A process that dies before it is ready takes nothing over. A file that a killed process has left is no
// obstacle. Only the user can connect to the socket.
func TestHandoverFails(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	path := filepath.Join(t.TempDir(), "handover.sock")
	g := serve(t, "limits: []", upstream.URL, "--handover", path)
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	h, err := handover.TakeOver(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), "another process did not take over") })
	if status, _ := g.send(t, "GET", ""); status != 200 {
		t.Error(status)
	}
	if err := g.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	g = serve(t, "limits: []", upstream.URL, "--handover", path)
	if status, _ := g.send(t, "GET", ""); status != 200 {
		t.Error(status)
	}
}
