// SPDX-License-Identifier: MIT

package gateway

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var leaversFor = flag.Int("leavers", 10_000, "how many requests TestLeavers sends")

// linesWith returns the lines of a log that contain text.
func linesWith(log, text string) (found string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, text) {
			found += line
		}
	}
	return found
}

// TestLeavers runs clients that disconnect while the upstream answers, beside clients that stay.
// Every GET of a client that stays must succeed, see retryCancelled. A POST can fail, because it
// must not be repeated; the test logs how many do. For longer:
//
//	go test -run TestLeavers -v -leavers 300000 -timeout 30m
func TestLeavers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of load")
	}
	const stayers, leavers = 8, 24
	var left sync.Map // the connections of clients that leave, by number
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := left.Load(r.Header.Get("Leaver")); ok {
			_ = conn.(net.Conn).Close() // the gateway notices while it reads the answer
		}
		switch r.URL.Path {
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/body":
			_, _ = io.WriteString(w, "a body")
		}
	}))

	var sent, stayed, disconnected atomic.Int64 // requests of all clients, and of each kind
	var failed atomic.Int64                     // POSTs of clients that stayed
	var wg sync.WaitGroup
	for i := range stayers {
		wg.Go(func() {
			conn, err := net.Dial("tcp", r.host)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			for sent.Add(1) <= int64(*leaversFor) {
				n := stayed.Add(1)
				method, path := []string{"GET", "POST"}[n%2], []string{"/empty", "/body"}[n/2%2]
				body := ""
				if n%4 == 3 {
					body = "form"
				}
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Errorf("stayer %d, %s %s: %v", i, method, path, err)
					return
				}
				text, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				switch {
				case err == nil && answer.StatusCode/100 == 2:
				case err == nil && method == "POST" && answer.StatusCode == http.StatusBadGateway:
					failed.Add(1)
				default:
					t.Errorf("stayer %d, %s %s: %d %v %s\n%s", i, method, path, answer.StatusCode, err, text, linesWith(r.log.String(), "msg=upstream"))
				}
			}
		})
	}
	for range leavers {
		wg.Go(func() {
			for sent.Add(1) <= int64(*leaversFor) {
				conn, err := net.Dial("tcp", r.host)
				if err != nil {
					t.Error(err)
					return
				}
				n := disconnected.Add(1)
				name := fmt.Sprint(n)
				left.Store(name, conn)
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: here\r\nLeaver: %s\r\nConnection: close\r\n\r\n", []string{"GET", "HEAD"}[n%2], []string{"/empty", "/body"}[n/2%2], name)
				_, _ = io.Copy(io.Discard, conn) // until the upstream has closed it, or the gateway has
				left.Delete(name)
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests of clients that stayed, %d of clients that left, %d of these before the answer; %d POSTs of clients that stayed failed",
		stayed.Load(), disconnected.Load(), strings.Count(r.log.String(), "status=499"), failed.Load())
}
