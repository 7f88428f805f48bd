// SPDX-License-Identifier: MIT

package compat

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// site is a gateway with the files of a recipe, the Diana that it asks, and its upstream.
type site struct {
	dir      string // for files
	host     string // of the gateway
	check    string // where the gateway asks Diana
	admin    string // of Diana
	spare    string // where the gateway asks while Diana is away
	upstream *httptest.Server
	arrived  atomic.Int64 // requests at the upstream
	client   *http.Client
	answered atomic.Int64 // requests of the client
	diana    *testproc.Process
}

// newSite returns a site whose gateway and Diana do not run yet.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	for _, address := range []*string{&s.host, &s.check, &s.admin, &s.spare} {
		*address = fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	}
	s.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.arrived.Add(1)
		if code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/")); err == nil {
			w.WriteHeader(code)
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s with %q", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(s.upstream.Close)
	t.Cleanup(func() {
		if s.diana != nil {
			_ = s.diana.Kill()
		}
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	// The recipes promise that a request waits for Diana for a second. This is more, because the machine
	// may be busy, and less than the timeouts of the gateways themselves.
	s.client = &http.Client{Transport: transport, Timeout: 15 * time.Second}
	return s
}

// app returns the address of the upstream.
func (s *site) app() string { return s.upstream.Listener.Addr().String() }

// write writes a file and returns its path.
func (s *site) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// startDiana starts Diana, also if an earlier one has been killed.
func (s *site) startDiana(t *testing.T, yaml string) {
	t.Helper()
	file, log := s.write(t, "diana.yaml", yaml), filepath.Join(s.dir, "diana.log")
	var err error
	if s.diana, err = testproc.Start(log, *program, "serve", "--config", file, "--check", s.check, "--admin", s.admin); err != nil {
		t.Fatal(err)
	}
	if !testproc.Becomes(func() bool { return s.allowed("") >= 0 }) {
		text, _ := os.ReadFile(log)
		t.Fatalf("Diana does not start:\n%s", text)
	}
}

// allowed returns how many requests a rule has allowed, or -1 if Diana does not answer.
func (s *site) allowed(rule string) int64 {
	r, err := http.Get("http://" + s.admin + "/status")
	if err != nil {
		return -1
	}
	defer r.Body.Close()
	var status struct {
		Rules []struct {
			Name    string
			Allowed int64
		}
	}
	if json.NewDecoder(r.Body).Decode(&status) != nil {
		return -1
	}
	for _, r := range status.Rules {
		if r.Name == rule {
			return r.Allowed
		}
	}
	return 0
}

// ask sends one request. fields are names and values in turn. Any goroutine may call it.
func (s *site) ask(t *testing.T, method, path, body string, fields ...string) response {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	res, err := s.client.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return response{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	s.answered.Add(1)
	return response{res.StatusCode, res.Header, string(text)}
}

// response is what a client of a gateway sees. The status is 0 if there is none.
type response struct {
	status int
	header http.Header
	body   string
}

// flood sends requests by many clients, each one after another, and returns how many got each status.
func (s *site) flood(t *testing.T, clients, requests int, path string, fields ...string) map[int]int {
	t.Helper()
	var sent atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	statuses := map[int]int{}
	for range clients {
		wg.Go(func() {
			for sent.Add(1) <= int64(requests) {
				status := s.ask(t, "GET", path, "", fields...).status
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return statuses
}
