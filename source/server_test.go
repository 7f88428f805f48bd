// SPDX-License-Identifier: MIT

package source_test

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/source"
)

// server is a web server that can be stopped and started at the same address.
type server struct {
	t       *testing.T
	handler http.Handler
	secure  bool
	addr    string
	http    *httptest.Server // nil: stopped
}

func serve(t *testing.T, secure bool, handler http.Handler) *server {
	t.Helper()
	s := &server{t: t, handler: handler, secure: secure, addr: "127.0.0.1:0"}
	s.start()
	s.addr = s.http.Listener.Addr().String()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	s.t.Helper()
	var l net.Listener
	err := error(nil)
	for range 100 { // another process may use this port
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	must(s.t, err)
	s.http = &httptest.Server{Listener: l, Config: &http.Server{
		Handler:  s.handler,
		ErrorLog: log.New(io.Discard, "", 0), // errors of closed connections
	}}
	if s.secure {
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
}

func (s *server) stop() {
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
		s.http = nil
	}
}

// trust returns a configuration that trusts the certificate of the server; nil without TLS.
func (s *server) trust() *tls.Config {
	if !s.secure {
		return nil
	}
	return s.http.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

// document is a document on a web server.
type document struct {
	allowed func(*http.Request) bool
	tags    bool // the server sends ETag, otherwise Last-Modified

	mu       sync.Mutex // guards the rest
	now      source.Document
	modified time.Time
	statuses map[int]int // how often each was answered
}

func (d *document) set(now source.Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.modified = now, time.Now()
}

func (d *document) answered(status int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statuses[status]
}

func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	switch {
	case !d.allowed(r):
		status = http.StatusUnauthorized
	case r.Method == http.MethodPut:
		status = d.put(r)
	}
	d.mu.Lock()
	now, modified := d.now, d.modified
	if status == http.StatusOK && !now.Exists {
		status = http.StatusNotFound
	}
	tag := tagOf(now.Text)
	if status == http.StatusOK && d.tags && r.Header.Get("If-None-Match") == tag ||
		status == http.StatusOK && !d.tags && r.Header.Get("If-Modified-Since") == modified.UTC().Format(http.TimeFormat) {
		status = http.StatusNotModified
	}
	if d.statuses == nil {
		d.statuses = map[int]int{}
	}
	d.statuses[status]++
	d.mu.Unlock()
	if d.tags {
		w.Header().Set("ETag", tag)
	} else {
		w.Header().Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(status)
	if status == http.StatusOK {
		_, _ = w.Write(now.Text) // the client may disconnect before the end
	}
}

func tagOf(text []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(text))) }

// put replaces the document if the conditions of a request allow it. It returns the status.
func (d *document) put(r *http.Request) int {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusBadRequest
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	match := r.Header.Get("If-Match")
	if match != "" && (!d.now.Exists || match != tagOf(d.now.Text)) ||
		r.Header.Get("If-None-Match") == "*" && d.now.Exists {
		return http.StatusPreconditionFailed
	}
	d.now, d.modified = source.Document{Text: text, Exists: true}, time.Now()
	return http.StatusNoContent
}

// parseURL returns the URL that text is.
func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
