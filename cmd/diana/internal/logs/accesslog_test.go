// SPDX-License-Identifier: MIT

package logs

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// nobody returns no attributes of a client.
func nobody(*http.Request) []slog.Attr { return nil }

// logOf returns the log of a request to this handler.
func logOf(t *testing.T, h http.HandlerFunc, target string) string {
	t.Helper()
	var b bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&b, nil))
	handler := Access(logger, nobody)(h)
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
	}()
	return b.String()
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, "status=200 bytes=0"},
		{"body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }, "status=200 bytes=5"},
		{"status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(500) }, "status=404 bytes=0"},
		{"informational", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) }, "status=204 bytes=0"},
		{"flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, "status=200 bytes=0"},
		{"copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("12345678")) }, "status=200 bytes=8"},
		{"panic", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic(http.ErrAbortHandler) }, "status=201 bytes=0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log := logOf(t, test.handler, "/a%2Fb?secret=1")
			if !strings.Contains(log, "msg=request method=GET path=/a%2Fb "+test.want+" duration=") || strings.Contains(log, "secret") {
				t.Error(log)
			}
			if aborted := strings.Contains(log, "aborted=true"); aborted != (test.name == "panic") {
				t.Error(log)
			}
			if strings.Count(log, "\n") != 1 {
				t.Error(log)
			}
		})
	}
}

// A client cannot end a line of the log and begin another.
func TestAccessLogIsOneLine(t *testing.T) {
	t.Parallel()
	log := logOf(t, func(http.ResponseWriter, *http.Request) {}, "/%0Alevel=ERROR%20msg=%22")
	if strings.Count(log, "\n") != 1 || strings.Contains(log, " level=ERROR") {
		t.Error(log)
	}
}

// The log's ResponseWriter has the abilities of the ResponseWriter that it wraps.
func TestAccessLogKeepsAbilities(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(Access(slog.New(slog.DiscardHandler), nobody)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("no ReadFrom")
			}
			control := http.NewResponseController(w)
			if err := control.EnableFullDuplex(); err != nil {
				t.Error("no Unwrap:", err)
			}
			if err := control.Flush(); err != nil {
				t.Error("no Flush:", err)
			}
			conn, _, err := control.Hijack()
			if err != nil {
				t.Error("no Hijack:", err)
				return
			}
			conn.Close()
		})))
	t.Cleanup(server.Close)
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

func TestSaneID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"":                                     false,
		"a":                                    true,
		"4bf92f3577b34da6a3ce929d0e0e4736":     true,
		"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d": true,
		"Root=1-67891233-abcdef012345678912345678": true,
		"a b":                    false,
		"a\nb":                   false,
		`"`:                      false,
		"ä":                      false,
		strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false,
	} {
		if got := saneID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
	if a, b := newID(), newID(); a == b || !saneID(a) || len(a) != 32 {
		t.Error(a, b)
	}
}
