// SPDX-License-Identifier: MIT

package compat

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// upstream is a server behind the gateway. It begins the body of an answer with
// "served: " and the route, which is a path.
type upstream struct {
	name string
	host string
}

// tee is the server that the gateway sends requests to. It sends each request byte by byte to all
// upstreams, and its answer says which of them served what. So one gateway tests all upstreams.
type tee struct {
	upstreams []upstream
	host      string
}

// newTee starts a tee. It ends with the test.
func newTee(t testing.TB, upstreams []upstream) *tee {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tee := &tee{upstreams, l.Addr().String()}
	var serving sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			serving.Go(func() {
				tee.serve(conn)
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for conn := range open {
			conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return tee
}

// serve answers the requests of one connection.
func (t *tee) serve(conn net.Conn) {
	wires := make([]wire, len(t.upstreams))
	for i, u := range t.upstreams {
		wires[i].host = u.host
		defer wires[i].close()
	}
	for r := bufio.NewReader(conn); ; {
		head, err := readHead(r)
		if err != nil {
			return
		}
		served := map[string]string{} // the route by the name of the upstream
		for i, u := range t.upstreams {
			_, body, err := wires[i].ask(head)
			if err != nil {
				served[u.name] = err.Error() // the upstream has ended, and the test must not continue as if it refused all
			} else if route, ok := route(body); ok {
				served[u.name] = route
			}
		}
		body, err := json.Marshal(served)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return
		}
	}
}

// readHead reads a request that has no body.
func readHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			return "", err
		}
		if line == "\r\n" {
			return head.String(), nil
		}
		if head.Len() > 1<<20 {
			return "", errors.New("the head of the request does not end")
		}
	}
}

// route returns what the body of an upstream's answer says that it served.
func route(body string) (string, bool) {
	return strings.CutPrefix(strings.TrimSuffix(body, "\n"), "served: ")
}
