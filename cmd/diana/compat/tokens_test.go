// SPDX-License-Identifier: MIT

package compat

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// reserved is what tokenRules reserve, and quota is their limit.
const (
	reserved = 40
	quota    = 100_000_000
)

// tokenRules count the tokens of each key. The second one has weights. No window ends during a test.
const tokenRules = `
identity: {account: ["header:Authorization"]}
response: {status: 429}
limits:
- url: POST /v1/chat/completions
  rules: [{name: chat, actor: account, unit: day, algo: W, align: first, rpu: 100000000, charge: [200], SCOPE cost: {answer: openai, reserve: 40, include_usage: false}}]
- url: POST /v1/messages
  rules: [{name: messages, actor: account, unit: day, algo: SW, rpu: 100000000, charge: [200], SCOPE cost: {answer: anthropic, reserve: 40, weights: {input: 1, output: 4, cached: 0.25}}}]
`

// rules returns tokenRules with more keys in each rule.
func rules(keys string) string { return strings.ReplaceAll(tokenRules, "SCOPE", keys) }

// provider starts the mock provider of examples/llm, and returns its address. Its slow models take an hour
// for each token.
func provider(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "llm")
	build := exec.Command("go", "build", "-o", file, "github.com/diana-limiter/diana/examples/llm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	start(t, []upstream{{"provider", host}}, file, "-listen", host, "-pause", "1h")
	return host
}

// compressing starts an nginx that compresses what an upstream sends, and returns its address.
func compressing(t *testing.T, upstreamHost string) string {
	t.Helper()
	host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	config := strings.NewReplacer("LISTEN", host, "UPSTREAM", upstreamHost).Replace(`
gzip on; gzip_types *; gzip_proxied any; gzip_min_length 0;
upstream provider { server UPSTREAM; keepalive 32; }
server {
	listen LISTEN;
	location / {
		proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
		proxy_set_header Accept-Encoding ""; proxy_buffering off; proxy_read_timeout 10m;
	}
}
`)
	start(t, []upstream{{"nginx", host}}, recipes[0].command(), nginxArgs(t, t.TempDir(), config)...)
	return host
}

// tokenGateway is a diana serve whose rules count tokens.
type tokenGateway struct {
	host, admin, log string
	process          *testproc.Process
	url              string // of the host
	client           *http.Client
}

// serveTokens starts diana serve in front of an upstream.
func serveTokens(t *testing.T, upstreamHost, yaml string, args ...string) *tokenGateway {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "diana.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &tokenGateway{
		host:  fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t)),
		admin: fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t)),
		log:   filepath.Join(dir, "log"),
	}
	g.url, g.client = "http://"+g.host, http.DefaultClient
	args = append([]string{"serve", "--config", file, "--upstream", "http://" + upstreamHost, "--listen", g.host, "--admin", g.admin}, args...)
	var err error
	if g.process, err = testproc.Start(g.log, *program, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.process.Kill()
		if text, err := os.ReadFile(g.log); t.Failed() && err == nil {
			t.Logf("%s said at last:\n%s", g.host, text[max(0, len(text)-2000):])
		}
	})
	err = testproc.Poll(testproc.Patience, func() error {
		answer, err := http.Get("http://" + g.admin + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); !bytes.HasPrefix(text, []byte("ready")) {
			return fmt.Errorf("readyz: %s %s", answer.Status, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// terminate asks the gateway to stop, as systemd does.
func (g *tokenGateway) terminate(t *testing.T) {
	t.Helper()
	if err := g.process.Terminate(); err != nil {
		t.Fatal(err)
	}
}

// metric returns a counter of a rule. A counter with another label is named as in name{label="value".
func (g *tokenGateway) metric(t *testing.T, name, rule string) int {
	t.Helper()
	answer, err := http.Get("http://" + g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(fmt.Sprintf(`(?m)^%s[{,]rule="%s"\} (\S+)$`, regexp.QuoteMeta(name), rule)).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no %s of %s in\n%s", name, rule, text)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func (g *tokenGateway) unsettled(t *testing.T, rule string) int {
	t.Helper()
	return g.metric(t, "diana_unsettled_total", rule)
}

// charged returns what a key has been charged, up to quota - reserved. Its own request is not charged, because
// the provider refuses it.
func (g *tokenGateway) charged(t *testing.T, path, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := g.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	found := remainingField.FindStringSubmatch(answer.Header.Get("RateLimit"))
	if found == nil || answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%s: %s, RateLimit is %q", path, answer.Status, answer.Header.Get("RateLimit"))
	}
	left, _ := strconv.Atoi(found[1])
	return quota - reserved - left
}

var remainingField = regexp.MustCompile(`";r=(\d+)`)
