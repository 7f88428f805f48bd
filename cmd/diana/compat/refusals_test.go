// SPDX-License-Identifier: MIT

package compat

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// refusalRules refuse by a budget that is used up or reserved by a request in flight.
const refusalRules = `
limits:
- url: POST PATH
  refusal: FORMAT
  rules: [{name: budget, unit: day, algo: W, align: first, rpu: 1000, cost: {answer: FORMAT, reserve: 600}}]
`

// mcpRules refuse by method, so that a client can begin a session. Within a session, a client makes the call twice.
const mcpRules = `
limits:
- url: POST /mcp
  refusal: {jsonrpc: {status: STATUS}}
  rules: [{name: budget, actor: "body:/method", RULE}]
`

// modelAnswer is an answer in each format. It uses up a budget.
const modelAnswer = `{"id": "x", "object": "chat.completion", "type": "message", "role": "assistant", "model": "small",
"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
"content": [{"type": "text", "text": "done"}],
"candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}}],
"usage": {"prompt_tokens": 1, "completion_tokens": 999, "total_tokens": 1000, "input_tokens": 1, "output_tokens": 999},
"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 999, "totalTokenCount": 1000}}`

// models starts an upstream that answers in all formats, but a slow model only when the client disconnects.
func models(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "slow") {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, modelAnswer)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// goClients builds the program of tools/clients.
func goClients(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clients")
	build := exec.Command("go", "build", "-C", "../../../tools/clients", "-o", file, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// A refusalCase is a client at one setting.
type refusalCase struct {
	setting string        // "default", or a number of retries
	usedUp  int           // requests while the budget is used up
	busy    int           // requests while a request in flight has reserved it
	longest time.Duration // a client that runs longer is killed; 0: a minute
}

// TestRefusals: real client libraries show their users why Diana has refused, and until when. They call in vain as
// often as the cases say, and do not hang.
func TestRefusals(t *testing.T) {
	if !*allServers {
		t.Skip("only with -all")
	}
	program := goClients(t)
	upstream := models(t)
	usual := []refusalCase{{"default", 1, 3, 0}, {"0", 1, 1, 0}, {"5", 1, 6, 0}}
	for _, tc := range []struct {
		name    string
		command []string
		path    string
		format  string
		cases   []refusalCase
	}{
		{"openai for Node", nodeClient("openai"), chatPath, "openai", usual},
		{"openai for Go", []string{program, "openai"}, chatPath, "openai", usual},
		// LangChain repeats a request six times by default, and doubles its waits. Only insufficient_quota or a Retry-After
		// above a minute stop it, and neither is true of a busy budget.
		{"LangChain", nodeClient("langchain"), chatPath, "openai", []refusalCase{{"default", 1, 7, 4 * time.Minute}, {"0", 1, 1, 0}, {"2", 1, 3, 0}}},
		{"Anthropic for Node", nodeClient("anthropic"), messagesPath, "anthropic", usual},
		{"Anthropic for Go", []string{program, "anthropic"}, messagesPath, "anthropic", usual},
		// Genai reads no field, and repeats a request only with such a setting.
		{"genai for Go", []string{program, "genai"}, geminiPath, "gemini", []refusalCase{{"default", 1, 1, 0}, {"0", 1, 1, 0}, {"2", 3, 3, 0}}},
	} {
		rules := strings.NewReplacer("PATH", tc.path, "FORMAT", tc.format).Replace(refusalRules)
		for _, c := range tc.cases {
			t.Run(tc.name+"/"+c.setting+"/used up", func(t *testing.T) {
				t.Parallel()
				g := serveTokens(t, upstream, rules, patient)
				spend(t, g, tc.path)
				g.refuses(t, runClient(t, c, tc.command, g.url, ""), c.usedUp, refusalText)
			})
			t.Run(tc.name+"/"+c.setting+"/busy", func(t *testing.T) {
				t.Parallel()
				g := serveTokens(t, upstream, rules, patient)
				hold(t, g, tc.path, `{"model": "slow"}`)
				g.refuses(t, runClient(t, c, tc.command, g.url, ""), c.busy, refusalText)
				if n := g.metric(t, "diana_refused_reserved_total", "budget"); n != c.busy {
					t.Errorf("%d of %d refusals are of reservations", n, c.busy)
				}
			})
		}
	}
}

// TestRefusalsMCP does so with SDKs of MCP. They repeat no call.
func TestRefusalsMCP(t *testing.T) {
	if !*allServers {
		t.Skip("only with -all")
	}
	program := goClients(t)
	host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	start(t, []upstream{{"MCP", host}}, program, "serve", host)
	const (
		usedUp = "unit: day, algo: W, align: first, rpu: 1"
		busy   = "algo: C, rpu: 1"
		slow   = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}`
	)
	for name, command := range map[string][]string{"TypeScript": nodeClient("mcp"), "Go": {program, "mcp"}} {
		withStatus := refusalText
		if name == "Go" {
			withStatus = "Too Many Requests" // this SDK reads no body of such a response
		}
		for _, tc := range []struct {
			what, setting, method, rule, status string
			times                               int
			shows                               string
		}{
			{"used up", "default", "tools/call", usedUp, "200", 1, "isError: true: " + refusalText},
			{"busy", "default", "tools/call", busy, "200", 2, "isError: true: " + refusalText}, // both calls are refused
			{"used up", "default", "tools/list", usedUp, "200", 1, refusalText},
			{"used up", "0", "tools/call", usedUp, "200", 1, "isError: true: " + refusalText},
			{"busy", "0", "tools/call", busy, "200", 2, "isError: true: " + refusalText},
			{"used up", "default", "tools/call", usedUp, "429", 1, withStatus},
			{"busy", "default", "tools/call", busy, "429", 1, withStatus},
			{"used up", "0", "tools/call", usedUp, "429", 1, withStatus},
		} {
			t.Run(strings.Join([]string{name, tc.setting, tc.method, tc.what, tc.status}, "/"), func(t *testing.T) {
				t.Parallel()
				g := serveTokens(t, host, strings.NewReplacer("RULE", tc.rule, "STATUS", tc.status).Replace(mcpRules), patient)
				if tc.rule == busy {
					hold(t, g, "/mcp", slow)
				}
				g.refuses(t, runClient(t, refusalCase{setting: tc.setting}, command, g.url, tc.method), tc.times, tc.shows)
			})
		}
	}
}

const (
	geminiPath = "/v1beta/models/small:generateContent"

	patient = "--upstream-timeout=1h" // so that slow requests hold a budget

	// refusalText is what users see, in the message of each form.
	refusalText = "This request is more than the limits allow (budget). It may be repeated in "
)

func nodeClient(library string) []string {
	return []string{"node", "testdata/clients/refusals.mjs", library}
}

// runClient runs a client, and returns what its user sees.
func runClient(t *testing.T, c refusalCase, command []string, url, method string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), cmp.Or(c.longest, time.Minute))
	defer stop()
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], []string{c.setting, method, url, "key"})...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")} // the libraries read keys from others
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began).Round(100 * time.Millisecond)
	if err != nil {
		t.Fatalf("%v after %v: %v\n%s", cmd, took, err, out)
	}
	t.Logf("after %v: %s", took, out)
	return string(out)
}

func askModel(ctx context.Context, g *tokenGateway, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

// spend uses up the budget.
func spend(t *testing.T, g *tokenGateway, path string) {
	t.Helper()
	answer, err := askModel(t.Context(), g, path, `{"model": "small"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", answer.Status, err)
	}
}

// hold keeps a request in flight until the test ends.
func hold(t *testing.T, g *tokenGateway, path, body string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if answer, err := askModel(ctx, g, path, body); err == nil {
			_ = answer.Body.Close()
		}
	}()
	t.Cleanup(func() { leave(); <-ended })
	if !testproc.Becomes(func() bool { return g.decided(t, "allowed") == 1 }) {
		t.Fatal("the request that holds the budget was not allowed")
	}
}

// decided returns how many requests the budget has allowed or refused.
func (g *tokenGateway) decided(t *testing.T, decision string) int {
	t.Helper()
	return g.metric(t, fmt.Sprintf("diana_requests_total{decision=%q", decision), "budget")
}

// refuses requires that the budget has refused so many requests, and that the user sees a text.
func (g *tokenGateway) refuses(t *testing.T, shown string, times int, want string) {
	t.Helper()
	if n := g.decided(t, "refused"); n != times {
		t.Errorf("%d requests, want %d", n, times)
	}
	if !strings.Contains(shown, want) {
		t.Errorf("%q does not show %q", shown, want)
	}
}
