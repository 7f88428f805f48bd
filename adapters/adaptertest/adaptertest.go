// SPDX-License-Identifier: MIT

// Package adaptertest is the table of cases that every adapter for an HTTP framework passes, over real
// sockets. It is for the tests of this repository, and makes no promise to other programs.
package adaptertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
)

// Framework is a framework under test.
type Framework struct {
	// Start starts a server for an App, until the test ends, and returns its URL.
	Start func(t *testing.T, app *App) (url string)

	// Pattern is how the framework writes the route /users/{id}.
	Pattern string

	// Unknown are the cases in which Diana does not learn of the status: then a request stays
	// charged. See chargeCases.
	Unknown []string

	// The framework, or its adapter, does not have these. The tests then expect the substitute that its
	// README promises.
	NoBandwidth  bool // bandwidth has no effect
	NoDivert     bool // a refused request gets the problem
	NoDisconnect bool // a client that disconnects is not noticed before the handler returns
	RoutesLater  bool // middleware of the whole server does not know the route
	NoOptions    bool // there is no adapter, so Options do not exist
}

// App is what a server under test serves. All routes are behind Diana's middleware, unless Single is set.
//
//	GET, HEAD /hello  "hello", and Calls counts the request
//	GET /users/{id}   "user " and the id
//	GET /users/new    "new"
//	GET /status/{n}   the status n, with a body
//	GET /silent       the handler writes nothing
//	GET /error        the handler returns or records an error, which the framework answers with 409
//	GET /panic        the handler panics, which the framework answers with 500
//	GET /wait         "done" after Wait with the context of the request
//	GET /stream       "data: 1\n\n", flushed; after Wait "data: 2\n\n"
//	GET /endless      "data: 1\n\n", flushed, again and again until writing fails or the client disconnects
//	GET /big          Big, in pieces of 10,000 bytes
//	GET /trailer      "body", and the trailer X-Sum: 4
//	POST /echo        the body of the request
//	GET /socket       101, with Upgrade: echo; then the connection echoes its bytes
type App struct {
	Setup

	Limiter *diana.Limiter
	Calls   atomic.Int64
	entered chan struct{}
	open    chan struct{}
}

// Setup is how a server uses Diana's middleware.
type Setup struct {
	Inside bool // what answers errors and panics is behind Diana's middleware, else in front of it
	Single bool // only the routes of /users are behind Diana's middleware, and each has its own
	Route  bool // Options.Route
	Actor  bool // Options.Actor is Actor, of a user that an earlier middleware took from X-User
	Refuse bool // Options.Refuse answers 429 with "slow down: " and Refused
}

// Actor is Options.Actor for a user.
func Actor(user string) (kind, value string) {
	switch user {
	case "":
		return "", "" // no middleware knows: the fields count
	case "nobody":
		return "account", ""
	}
	return "account", user
}

// Refused is what Options.Refuse writes about a decision.
func Refused(d *diana.Decision) string { return d.Verdicts[0].Rule.Name }

// Serve starts a server of net/http until the test ends, and returns its URL. A complaint of net/http about
// the handler fails the test.
func Serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(complaints{t}, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// complaints is where net/http writes its log.
type complaints struct{ t *testing.T }

func (c complaints) Write(line []byte) (int, error) {
	c.t.Errorf("net/http: %s", line)
	return len(line), nil
}

// Big is the body of /big: a megabyte in which each part differs from the others.
var Big = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}()

// Wait waits until the test opens the gate, or ctx ends.
func (a *App) Wait(ctx context.Context) {
	a.entered <- struct{}{}
	select {
	case <-a.open:
	case <-ctx.Done():
	}
}

// session is one case under test: a server, and a client for it.
type session struct {
	*testing.T
	Framework
	app    *App
	url    string
	client *http.Client
}

// knownKey is the API key in the file KEYS.
const knownKey = "a-key-of-ann"

// keys returns the path of a file with knownKey, quoted.
func keys(t *testing.T) string {
	t.Helper()
	return file(t, "", fmt.Sprintf("sha256:%x ann\n", sha256.Sum256([]byte(knownKey))))
}

// file returns the path of a file with a text, with a prefix and quoted.
func file(t *testing.T, prefix, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return strconv.Quote(prefix + path)
}

// start starts a server with limits in YAML.
func start(t *testing.T, f Framework, limits string, setup Setup) *session {
	t.Helper()
	if strings.Contains(limits, "UPSTREAM") {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "upstream "+r.URL.String())
		}))
		t.Cleanup(upstream.Close)
		limits = strings.Replace(limits, "UPSTREAM", upstream.URL, 1)
	}
	limits = strings.Replace(limits, "KEYS", keys(t), 1)
	limits = strings.Replace(limits, "PATTERN", f.Pattern, 1)
	c, err := config.Parse("limits.yaml", []byte(limits))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{T: t, Framework: f, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 100},
		Timeout:   2 * testproc.Patience, // so that a response that never comes fails its case
	}}
	s.app = &App{Setup: setup, Limiter: limiter, entered: make(chan struct{}, 100), open: make(chan struct{})}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.url = f.Start(t, s.app)
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = limiter.Close()
	})
	return s
}

// eventually waits until condition is true.
func (s *session) eventually(condition func() bool) {
	s.Helper()
	testproc.Eventually(s, condition)
}
