// SPDX-License-Identifier: MIT

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// newToken returns a token in a file.
func newToken(t *testing.T, text string, mode os.FileMode) Token {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	var token Token
	if err := token.UnmarshalText([]byte("file:" + file)); err != nil {
		t.Fatal(err)
	}
	return token
}

// Changes need the token from everywhere. Reading needs it from other machines, if there is one.
func TestAdminToken(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	quiet := slog.New(slog.DiscardHandler)
	open := Flags{Debug: true}.Guard(page, page, quiet)
	closed := Flags{Debug: true, AdminToken: newToken(t, "s3cret-of-the-operators\n", 0o600)}.Guard(page, page, quiet)
	const loopback, loopback6, other = "127.0.0.1:1234", "[::1]:1234", "192.0.2.1:1234"
	for _, test := range []struct {
		handler              http.Handler
		method, path, remote string
		authorization        string
		status               int
	}{
		{open, "GET", "/status", other, "", 200},
		{open, "GET", "/debug/pprof/cmdline", other, "", 200},
		{open, "POST", "/reset", loopback, "", 401},
		{open, "POST", "/reset", loopback, "Bearer s3cret-of-the-operators", 401},
		{open, "POST", "/reset", loopback, "Bearer ", 401},
		{closed, "GET", "/status", loopback, "", 200},
		{closed, "HEAD", "/status", loopback6, "", 200},
		{closed, "GET", "/status", "[::ffff:127.0.0.1]:1234", "", 200},
		{closed, "GET", "/status", other, "", 401},
		{closed, "HEAD", "/status", other, "", 401},
		{closed, "GET", "/status", "", "", 401},
		{closed, "GET", "/status", other, "Bearer wrong", 401},
		{closed, "GET", "/status", other, "Bearer s3cret-of-the-operators2", 401},
		{closed, "GET", "/status", other, "Basic s3cret-of-the-operators", 401},
		{closed, "GET", "/status", other, "s3cret-of-the-operators", 401},
		{closed, "GET", "/status", other, "Bearer s3cret-of-the-operators", 200},
		{closed, "GET", "/status", other, "bearer  s3cret-of-the-operators", 200},
		{closed, "GET", "/debug/pprof/cmdline", other, "", 401},
		{closed, "GET", "/healthz", other, "", 200},
		{closed, "GET", "/readyz", other, "", 200},
		{closed, "GET", "/metrics", other, "", 200},
		{closed, "POST", "/metrics", other, "", 401},
		{closed, "POST", "/reset", loopback, "", 401},
		{closed, "POST", "/reset", other, "Bearer wrong", 401},
		{closed, "POST", "/reset", loopback, "Bearer s3cret-of-the-operators", 200},
		{closed, "POST", "/reset", other, "Bearer s3cret-of-the-operators", 200},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.Host, r.RemoteAddr = "localhost:9090", test.remote
		if test.authorization != "" {
			r.Header.Set("Authorization", test.authorization)
		}
		w := httptest.NewRecorder()
		test.handler.ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s %s from %s with %q: %d, want %d", test.method, test.path, test.remote, test.authorization, w.Code, test.status)
		}
		if w.Code == http.StatusUnauthorized && (!strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") || !strings.Contains(w.Body.String(), "--admin-token")) {
			t.Errorf("%s %s: %v %s", test.method, test.path, w.Header(), w.Body)
		}
	}
}

// A page of another site resets nothing, even if its request has the token.
func TestResetCrossOrigin(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := Flags{AdminToken: newToken(t, "s3cret-of-the-operators", 0o600)}.Guard(page, page, slog.New(slog.DiscardHandler))
	r := httptest.NewRequest(http.MethodPost, "/reset", nil)
	r.Host = "localhost:9090"
	r.Header.Set("Authorization", "Bearer s3cret-of-the-operators")
	r.Header.Set("Origin", "https://evil.example")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Error(w.Code)
	}
}

// A new token takes effect when its file changes. A token that cannot be read admits nobody.
func TestAdminTokenIsReadAnew(t *testing.T) {
	t.Parallel()
	token := newToken(t, "old-token-of-the-operators", 0o600)
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	var log testproc.Buffer
	h := Flags{AdminToken: token}.Guard(page, page, slog.New(slog.NewTextHandler(&log, nil)))
	status := func(text string) int {
		r := httptest.NewRequest(http.MethodPost, "/reset", nil)
		r.Host = "localhost:9090"
		r.Header.Set("Authorization", "Bearer "+text)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	file := strings.TrimPrefix(token.secret.String(), "file:")
	if old, next := status("old-token-of-the-operators"), status("new-token-of-the-operators"); old != 200 || next != 401 {
		t.Error(old, next)
	}
	if err := os.WriteFile(file, []byte("new-token-of-the-operators"), 0o600); err != nil {
		t.Fatal(err)
	}
	if old, next := status("old-token-of-the-operators"), status("new-token-of-the-operators"); old != 401 || next != 200 {
		t.Error(old, next)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := status("new"); got != 500 || !strings.Contains(log.String(), file) {
		t.Error(got, log.String())
	}
}

func TestAdminTokenAtStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		mode       os.FileMode
		err, warns string
	}{
		{"good", "s3cret-of-the-operators\n", 0o600, "", ""},
		{"readable by a group", "s3cret-of-the-operators", 0o640, "", ""},
		{"readable by others", "s3cret-of-the-operators", 0o644, "", "every user of this machine can read the admin token"},
		{"empty", "\n", 0o600, "is empty", ""},
		{"two lines", "a\nb\n", 0o600, "more than one line", ""},
		{"a space", "a b", 0o600, "expected visible ASCII characters", ""},
		{"a letter beyond ASCII", "ä", 0o600, "expected visible ASCII characters", ""},
	} {
		var log testproc.Buffer
		err := newToken(t, test.text, test.mode).Check(slog.New(slog.NewTextHandler(&log, nil)))
		switch {
		case test.err == "" && err != nil, test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		case !strings.Contains(log.String(), test.warns) || test.warns == "" && log.String() != "":
			t.Errorf("%s: it logs %q", test.name, log.String())
		}
	}
	if err := (Token{}).Check(slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// postReset sends a body to POST /reset. It returns the status, the answer, and the keys that were
// reset.
func postReset(t *testing.T, body string, fail error) (status int, answer string, keys []string) {
	t.Helper()
	l := limiterFor(t, resetRules)
	h := Reset(l.Config, func(_ context.Context, rule string, key ...string) error {
		keys = append(keys, rule+" "+key[0])
		return fail
	}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/reset", strings.NewReader(body)))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b), keys
}

func TestReset(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body   string
		status int
		keys   []string
		answer string // a part of it
	}{
		{`{"rule": "plan", "actor": "gold"}`, 200, []string{"plan header:X-Plan=4:gold;"}, `{"rule":"plan","actors":["header:X-Plan=4:gold;"]}`},
		{`{"rule": "all", "actor": "all"}`, 200, []string{"all all"}, `{"rule":"all","actors":["all"]}`},
		{`{"rule": "account", "actor": "ann"}`, 200, []string{"account account=3:ann;", "account header:X-Account-Id=3:ann;", "account cookie:acct=3:ann;"}, "cookie:acct=3:ann;"},
		{`{"rule": "both", "actor": ["ip=192.0.2.1", "cookie:acct=ann"]}`, 200, []string{"both ip=192.0.2.1;cookie:acct=3:ann;"}, ""},
		{`{"rule": "none", "actor": "gold"}`, 404, nil, `no rule has the name \"none\", expected one of \"account\", \"all\"`},
		{`{"rule": "ip", "actor": "ann"}`, 400, nil, "expected an IP address"},
		{`{"rule": "ip"}`, 400, nil, "expected {"},
		{`{"actor": "ann"}`, 400, nil, "expected {"},
		{`{"rule": "ip", "actor": []}`, 400, nil, "expected {"},
		{`{"rule": "ip", "actor": 7}`, 400, nil, "expected {"},
		{`{"rule": "ip", "actor": "192.0.2.1", "unit": "day"}`, 400, nil, "unit"},
		{`{"rule": "ip", "actor": "192.0.2.1"} {}`, 400, nil, "found more after it"},
		{`rule=ip`, 400, nil, "expected {"},
		{``, 400, nil, "expected {"},
		{`{"rule": "` + strings.Repeat("x", mostReset) + `"}`, 413, nil, "expected a body of at most 65536 bytes"},
	} {
		status, answer, keys := postReset(t, test.body, nil)
		if status != test.status || !slices.Equal(keys, test.keys) || !strings.Contains(answer, test.answer) {
			t.Errorf("%.80s: %d %s, reset %q; want %d, %q", test.body, status, answer, keys, test.status, test.keys)
		}
		if !json.Valid([]byte(answer)) {
			t.Errorf("%.80s: the answer is %q", test.body, answer)
		}
	}
}

// A reset that fails, such as without Redis, is an error of the server.
func TestResetFails(t *testing.T) {
	t.Parallel()
	status, answer, _ := postReset(t, `{"rule": "ip", "actor": "192.0.2.1"}`, errors.New("no connection"))
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, "no connection") {
		t.Error(status, answer)
	}
}

const resetRules = `
identity:
  account: ["header:X-Account-Id", "cookie:acct"]
limits:
  - url: /
    rules:
      - {name: all, rpu: 1}
      - {name: account, actor: account, rpu: 1}
      - {name: ip, actor: ip, rpu: 1}
      - {name: plan, actor: "header:X-Plan", rpu: 1}
      - {name: host, actor: host, rpu: 1}
      - {name: both, actor: [ip, account], rpu: 1}
`
