// SPDX-License-Identifier: MIT

package compat

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestHonest: the gateway passes on the paths of real APIs as they were sent.
func TestHonest(t *testing.T) {
	requests := append(list(t, "testdata/honest.txt"),
		"/objects/"+strings.Repeat("key/", 200)+"last",
		"/objects/"+strings.Repeat("a", 8000),
		"/"+strings.Repeat("%E6%97%A5", 800))
	if len(requests) < 200 {
		t.Errorf("%d paths, want 200", len(requests))
	}
	passes(t, requests)
}

// TestNeighbours: a rule refuses no path besides its own and those below it.
func TestNeighbours(t *testing.T) {
	passes(t, list(t, "testdata/neighbours.txt"))
}

// passes checks that a gateway which refuses the protected routes passes on all requests, each
// "METHOD path" or a path.
func passes(t *testing.T, requests []string) {
	t.Helper()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Method, " ", r.RequestURI)
	}))
	defer echo.Close()
	w := wire{host: gateway(t, echo.URL, refuseAll)}
	defer w.close()
	for _, request := range requests {
		if request[0] == '/' {
			request = "GET " + request
		}
		status, body, err := w.ask(request + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case status != http.StatusOK:
			t.Errorf("%.200s: status %d: %.300s", request, status, body)
		case body != encoded(request) && !strings.Contains(request, "/."): // dot segments may be resolved
			t.Errorf("%.200s: the upstream got %.200s", request, body)
		}
	}
}

// encoded returns request with those characters of the path percent-encoded that no path may hold.
func encoded(request string) string {
	path, query, found := strings.Cut(request, "?")
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c >= 0x80 || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if found {
		b.WriteString("?" + query)
	}
	return b.String()
}

// list returns the lines of a file, without empty lines and those that begin with #.
func list(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	known := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case known[line]:
			t.Errorf("%s: %s stands there twice", file, line)
		default:
			known[line] = true
			all = append(all, line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
