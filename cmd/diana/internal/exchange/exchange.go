// SPDX-License-Identifier: MIT

// Package exchange helps tests: it has upstreams, and what a client gets from them.
package exchange

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FewSlots is a configuration with a slot for each of four requests in flight.
const FewSlots = "url: /\nrules: [{name: few, algo: C, rpu: 4}]"

// ReadsAll is an upstream that reads the whole body and answers with its length.
func ReadsAll(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprint(w, n)
}

// Endless is an upstream whose answer has no end. It sends the header first. Otherwise ReverseProxy
// would write the header and a piece at the same time, and one write would wait for the lock of
// the other. Fake time does not pass while a goroutine waits for a lock.
func Endless(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	time.Sleep(time.Second)
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	}
}

// Blocking returns a handler that signals when it has a request, and holds the request until it or
// the test ends.
func Blocking(t *testing.T) (h http.Handler, inside <-chan struct{}) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(release) })
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}), entered
}

// Answering returns the address of a server that sends this answer to each request and disconnects.
func Answering(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, answer)
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// Answer is the answer of a gateway.
type Answer struct {
	Status          int
	Header, Trailer http.Header
	Body            string
}

// RoundTrip sends a request, follows no redirect, and reads the whole answer.
func RoundTrip(t *testing.T, request *http.Request) Answer {
	t.Helper()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{response.StatusCode, response.Header, response.Trailer, string(body)}
}
