// SPDX-License-Identifier: MIT

package dianacaddy

import (
	"bufio"
	"context"
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
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
)

// server is a Caddy that runs in this process. There can be one at a time, so the tests are not parallel.
type server struct {
	*testing.T
	dir     string
	address string
	backend *backend
	client  *http.Client // with a connection for each request, because Caddy closes them at a change
}

// backend answers what Caddy forwards.
type backend struct {
	*httptest.Server
	held, release chan struct{}
	calls         atomic.Int64
}

// start runs Caddy with a file limits.yaml and the directives of a site.
func start(t *testing.T, limits, site string) *server {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	b := &backend{held: make(chan struct{}, 100), release: make(chan struct{})}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // so that nobody else gets the port before Caddy
	s := &server{t, dir, listener.Addr().String(), b, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	s.write(limits)
	listener.Close()
	if err := s.load(site); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		limiters.Range(func(file, _ any) bool {
			t.Errorf("the limiter of %v is still open", file)
			return true
		})
	})
	return s
}

// file is the file of the limits.
func (s *server) file() string { return filepath.Join(s.dir, "limits.yaml") }

func (s *server) write(limits string) {
	s.Helper()
	if err := os.WriteFile(s.file(), []byte(limits), 0o600); err != nil {
		s.Fatal(err)
	}
}

// load has Caddy load a configuration. In the directives of the site, LIMITS is the file of the limits, and
// BACKEND the address of the backend.
func (s *server) load(site string) error {
	s.Helper()
	text := "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tgrace_period 5s\n\tlog {\n\t\toutput discard\n\t}\n\tservers {\n\t\ttrusted_proxies static 127.0.0.0/8\n\t}\n}\n" +
		"http://" + s.address + " {\n" + strings.NewReplacer("LIMITS", s.file(), "BACKEND", s.backend.Listener.Addr().String()).Replace(site) + "\n}\n"
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// ServeHTTP serves the backend. The path says what it does.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.calls.Add(1)
	switch r.URL.Path {
	case "/hold":
		b.held <- struct{}{}
		select {
		case <-b.release:
		case <-r.Context().Done():
		}
	case "/abort":
		panic(http.ErrAbortHandler)
	case "/events":
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		b.held <- struct{}{}
		<-b.release
		_, _ = io.WriteString(w, "data: last\n\n")
	case "/missing":
		http.NotFound(w, r)
	case "/echo":
		_, _ = io.Copy(w, r.Body)
	case "/upgrade":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	default:
		_, _ = io.WriteString(w, "backend")
	}
}

// answer is the answer to a request.
type answer struct {
	StatusCode int // 0: none
	Header     http.Header
}

// send sends a request, and returns the answer and its body.
func (s *server) send(method, path string, body io.Reader, fields ...string) (answer, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.address+path, body)
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	got, err := s.client.Do(r)
	if err != nil {
		return answer{}, err.Error()
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header}, string(text)
}

// get sends GET requests to the paths in turn, and checks their statuses.
func (s *server) get(want map[int]int, path string, fields ...string) {
	s.Helper()
	got := map[int]int{}
	for _, n := range want {
		for range n {
			answer, _ := s.send(http.MethodGet, path, nil, fields...)
			got[answer.StatusCode]++
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Errorf("GET %s %q: statuses %v, expected %v", path, fields, got, want)
	}
}

const daily = "- {url: /, rules: [{name: few, rpu: 2, unit: day, algo: W, align: first}]}"

const proxied = "diana {\n\tconfig LIMITS\n}\nreverse_proxy BACKEND"

// The example of README.md works as it is, but for the addresses and the place of the file.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, code, found := strings.Cut(string(text), "```"+language+"\n")
		code, _, _ = strings.Cut(code, "```")
		if !found {
			t.Fatalf("README.md has no block of %s", language)
		}
		return code
	}
	site, found := strings.CutPrefix(strings.TrimSuffix(block("caddyfile"), "\n}\n"), "http://localhost:8080 {\n")
	if !found {
		t.Fatalf("the site is %s", site)
	}
	s := start(t, block("yaml"), strings.NewReplacer("limits.yaml", "LIMITS", "127.0.0.1:3000", "BACKEND").Replace(site))
	s.get(map[int]int{200: 1}, "/reports")
	s.get(map[int]int{503: 1}, "/reports")
	s.get(map[int]int{200: 2}, "/other")
}

func TestRefused(t *testing.T) {
	s := start(t, daily, proxied)
	for i := range 3 {
		answer, body := s.send(http.MethodGet, "/", nil)
		h := answer.Header
		if i < 2 {
			if answer.StatusCode != 200 || body != "backend" || !strings.HasPrefix(h.Get("RateLimit"), fmt.Sprintf(`"few";r=%d;`, 1-i)) {
				t.Errorf("status %d, %v, %s", answer.StatusCode, h, body)
			}
		} else if answer.StatusCode != 503 || h.Get("Retry-After") == "" || h.Get("RateLimit-Policy") != `"few";q=2;w=86400` ||
			h.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, `"violated-policies":["few"]`) {
			t.Errorf("status %d, %v, %s", answer.StatusCode, h, body)
		}
	}
	if n := s.backend.calls.Load(); n != 2 {
		t.Errorf("%d calls have reached the backend", n)
	}
	s.get(map[int]int{400: 1}, "/x/%2e%2e/")
}

// With "errors", refusals go through the error routes of Caddy, and keep their fields.
func TestErrors(t *testing.T) {
	s := start(t, "response: {status: 429}\nlimits:\n"+daily, "diana {\n\tconfig LIMITS\n\terrors\n}\nrespond ok\nhandle_errors {\n\trespond \"Caddy says {err.status_code}\"\n}")
	s.get(map[int]int{200: 2}, "/")
	answer, body := s.send(http.MethodGet, "/", nil)
	if answer.StatusCode != 429 || body != "Caddy says 429" || answer.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, %v, %s", answer.StatusCode, answer.Header, body)
	}
}

// charge counts the status of errors, which Caddy answers after the limiter, and of requests that no handler
// answers.
func TestCharge(t *testing.T) {
	const site = `
diana {
	config LIMITS
}
error /error 418
respond /written 418
reverse_proxy /down 127.0.0.1:1
reverse_proxy /missing BACKEND
handle_errors {
	header X-Rendered yes
	respond {err.status_code}
}
`
	for _, c := range []struct {
		charge        int
		free, charged string
	}{
		{418, "/down", "/error"}, {418, "/nothing", "/written"}, {502, "/error", "/down"}, {200, "/error", "/nothing"},
		{404, "/written", "/missing"},
	} {
		s := start(t, fmt.Sprintf("- {url: /, rules: [{rpu: 1, unit: day, charge: [%d]}]}", c.charge), site)
		free, _ := s.send(http.MethodGet, c.free, nil)
		charged, _ := s.send(http.MethodGet, c.charged, nil)
		if free.StatusCode == 503 || charged.StatusCode != c.charge {
			t.Errorf("charge %d: %s gets %d, %s gets %d", c.charge, c.free, free.StatusCode, c.charged, charged.StatusCode)
		}
		if by := charged.Header.Get("X-Rendered"); (by == "yes") != (c.charged == "/error" || c.charged == "/down") {
			t.Errorf("%s: the error route has not answered: %v", c.charged, charged.Header)
		}
		s.get(map[int]int{503: 1}, c.charged)
		if err := caddy.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// panics is a handler that panics.
type panics struct{}

func (panics) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.panics", New: func() caddy.Module { return panics{} }}
}

func (panics) ServeHTTP(http.ResponseWriter, *http.Request, caddyhttp.Handler) error {
	panic(http.ErrAbortHandler)
}

func init() {
	caddy.RegisterModule(panics{})
	httpcaddyfile.RegisterHandlerDirective("panics", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return panics{}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("panics", httpcaddyfile.After, "redir")
}

// eventually waits until a condition holds, for at most a minute.
func (s *server) eventually(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal(what)
		}
	}
}

// Slots are released at the end of a response, after a panic and after a disconnect.
func TestSlots(t *testing.T) {
	s := start(t, "- {url: /, rules: [{rpu: 1, algo: C}]}", "panics /panic\n"+proxied)
	status := make(chan int, 1)
	hold := func(ctx context.Context, path string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := s.client.Do(r)
		if err != nil {
			status <- 0
			return
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		status <- answer.StatusCode
	}
	for _, path := range []string{"/hold", "/events"} {
		go hold(t.Context(), path)
		<-s.backend.held
		s.get(map[int]int{503: 1}, "/")
		s.backend.release <- struct{}{}
		if got := <-status; got != 200 {
			t.Errorf("%s: status %d", path, got)
		}
		s.eventually("the slot is not released", func() bool { a, _ := s.send(http.MethodGet, "/", nil); return a.StatusCode == 200 })
	}
	ctx, cancel := context.WithCancel(t.Context())
	go hold(ctx, "/hold")
	<-s.backend.held
	cancel()
	<-status
	s.eventually("the slot is not released", func() bool { a, _ := s.send(http.MethodGet, "/", nil); return a.StatusCode == 200 })
	s.send(http.MethodGet, "/abort", nil)
	s.send(http.MethodGet, "/panic", nil)
	s.eventually("the slot is not released", func() bool { a, _ := s.send(http.MethodGet, "/", nil); return a.StatusCode == 200 })
}

// The first event arrives while the backend still holds the stream.
func TestEvents(t *testing.T) {
	s := start(t, "- {url: /, rules: [{rpu: 9, charge: [200]}]}", proxied)
	answer, err := s.client.Get("http://" + s.address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	if line, err := lines.ReadString('\n'); line != "data: first\n" {
		t.Errorf("%q %v", line, err)
	}
	s.backend.release <- struct{}{}
	if rest, err := io.ReadAll(lines); !strings.Contains(string(rest), "last") {
		t.Errorf("%q %v", rest, err)
	}
}

// A connection that changes the protocol passes, and counts as 101.
func TestUpgrade(t *testing.T) {
	s := start(t, "- {url: /, rules: [{rpu: 1, unit: day, charge: [101]}]}", proxied)
	s.get(map[int]int{200: 2}, "/")
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n", s.address)
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != 101 {
		t.Fatal(answer, err)
	}
	defer answer.Body.Close()
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
	conn.Close()
	s.get(map[int]int{503: 1}, "/")
}

// A delay, a diversion and HEAD work as without Caddy.
func TestWaitDivertHead(t *testing.T) {
	s := start(t, `
- {url: /wait, rules: [{rpu: 1, unit: 20ms, algo: LB}]}
- {url: /divert, rules: [{rpu: 0}], divert: {status: 202, body: later}}
- {url: /head, rules: [{rpu: 1, unit: day}]}
`, proxied)
	s.get(map[int]int{200: 3}, "/wait")
	if answer, body := s.send(http.MethodGet, "/divert", nil); answer.StatusCode != 202 || body != "later" {
		t.Errorf("status %d, %s", answer.StatusCode, body)
	}
	for _, want := range []int{200, 503} {
		if answer, body := s.send(http.MethodHead, "/head", nil); answer.StatusCode != want || body != "" {
			t.Errorf("status %d, %s", answer.StatusCode, body)
		}
	}
}

func TestLarge(t *testing.T) {
	s := start(t, "- {url: /, rules: [{rpu: 9, charge: [200]}], bandwidth: {rate: 100m}}", proxied)
	text := strings.Repeat("x", 1<<20)
	if answer, body := s.send(http.MethodPost, "/echo", strings.NewReader(text)); answer.StatusCode != 200 || body != text {
		t.Errorf("status %d, %d bytes", answer.StatusCode, len(body))
	}
}

func TestActors(t *testing.T) {
	const site = `
vars /vars account ann
diana {
	config LIMITS
	actor account {vars.account}
	actor ip {client_ip}
}
reverse_proxy BACKEND
`
	s := start(t, `
identity: {account: ["header:X-Account"]}
limits:
- {url: /vars, rules: [{actor: account, rpu: 1, unit: day}]}
- {url: /ip, rules: [{actor: ip, rpu: 1, unit: day}]}
`, site)
	s.get(map[int]int{200: 1}, "/vars", "X-Account", "bob")
	s.get(map[int]int{503: 1}, "/vars", "X-Account", "carl")
	s.get(map[int]int{200: 1}, "/ip", "X-Forwarded-For", "192.0.2.1")
	s.get(map[int]int{200: 1}, "/ip", "X-Forwarded-For", "192.0.2.2")
	s.get(map[int]int{503: 1}, "/ip", "X-Forwarded-For", "192.0.2.1")
}

// Two sites with one file share its limiter. A matcher selects the requests that it sees.
func TestRoutes(t *testing.T) {
	s := start(t, daily, "diana /a* {\n\tconfig LIMITS\n}\ndiana /b* {\n\tconfig LIMITS\n}\nrespond ok")
	s.get(map[int]int{200: 5}, "/c")
	s.get(map[int]int{200: 1}, "/a")
	s.get(map[int]int{200: 1}, "/b")
	s.get(map[int]int{503: 1}, "/a")
	if n, _ := limiters.References(s.file()); n != 2 {
		t.Errorf("%d handlers use the limiter", n)
	}
}

// Loading a configuration keeps the counters, reads the file again, and changes nothing if it is invalid.
func TestLoad(t *testing.T) {
	s := start(t, daily, proxied)
	s.get(map[int]int{200: 1}, "/")
	if err := s.load("header X-New yes\n" + proxied); err != nil {
		t.Fatal(err)
	}
	if answer, _ := s.send(http.MethodGet, "/", nil); answer.Header.Get("X-New") != "yes" || answer.StatusCode != 200 {
		t.Errorf("status %d, %v", answer.StatusCode, answer.Header)
	}
	s.get(map[int]int{503: 1}, "/")

	s.write(strings.Replace(daily, "rpu: 2", "rpu: 3", 1))
	if err := s.load(proxied); err != nil {
		t.Fatal(err)
	}
	s.get(map[int]int{200: 1}, "/")
	s.get(map[int]int{503: 1}, "/")

	s.write("- {url: /, rules: [{rpu: many}]}")
	if err := s.load("header X-New again\n" + proxied); err == nil || !strings.Contains(err.Error(), "limits.yaml:1:") {
		t.Errorf("the error is %v", err)
	}
	s.get(map[int]int{503: 1}, "/")
	if n, _ := limiters.References(s.file()); n != 1 {
		t.Errorf("%d handlers use the limiter", n)
	}
	if err := s.load("respond ok"); err != nil {
		t.Fatal(err)
	}
	if _, used := limiters.References(s.file()); used {
		t.Error("the limiter is still open")
	}
}

func TestManyClients(t *testing.T) {
	const limit, clients, each = 100, 64, 4
	s := start(t, fmt.Sprintf("- {url: /, rules: [{rpu: %d, unit: day, algo: W, align: first}]}", limit), proxied)
	var counts [600]atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				answer, _ := s.send(http.MethodGet, "/", nil)
				counts[answer.StatusCode].Add(1)
			}
		})
	}
	all.Wait()
	if ok, refused, n := counts[200].Load(), counts[503].Load(), s.backend.calls.Load(); ok != limit || refused != clients*each-limit || n != limit {
		t.Errorf("%d allowed, %d refused, %d have reached the backend", ok, refused, n)
	}
}

func TestMistakes(t *testing.T) {
	s := start(t, daily, proxied)
	for site, want := range map[string]string{
		"diana":                "config is missing",
		"diana {\n}":           "config is missing",
		"diana {\n\tconfig\n}": "wrong argument count",
		"diana {\n\tconfig LIMITS\n\tconfig LIMITS\n}":      "wrong argument count",
		"diana {\n\tconfig LIMITS\n\terrors on\n}":          "wrong argument count",
		"diana {\n\tconfig LIMITS\n\tactor account\n}":      "wrong argument count",
		"diana {\n\tconfig LIMITS\n\tactor account \"\"\n}": "actor \"account\"",
		"diana {\n\tconfigs LIMITS\n}":                      "unknown key \"configs\"",
		"diana {\n\tconfig LIMITS.missing\n}":               "no such file",
	} {
		if err := s.load(site); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %s", site, err, want)
		}
	}
	s.get(map[int]int{200: 2}, "/")
	if n, _ := limiters.References(s.file()); n != 1 {
		t.Errorf("%d handlers use the limiter", n)
	}
}
