// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// start starts a provider behind the limits of the example. The time of the limits is always noon.
func start(t *testing.T, pause time.Duration) string {
	t.Helper()
	moment := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return moment }}.Open("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(l.Handler(newProvider(pause)))
	t.Cleanup(func() {
		server.Close()
		_ = l.Close()
	})
	return server.URL
}

// answer is a response without its body.
type answer struct {
	status int
	header http.Header
}

// post sends a request with the key of an account, and reads the whole response, or its first line if it is
// streamed by the slow model. ctx ends the request.
func post(ctx context.Context, t *testing.T, url, body string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer of-acme")
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(body, `"slow"`) && strings.Contains(body, "stream") {
		_, err = bufio.NewReader(response.Body).ReadString('\n')
		context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	} else {
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}
}

// left returns what a rule had left when a response began.
func left(t *testing.T, a answer, name string) int {
	t.Helper()
	fields := strings.Join(a.header["Ratelimit"], ", ")
	found := regexp.MustCompile(fmt.Sprintf(`%q;r=(\d+)`, name)).FindStringSubmatch(fields)
	if found == nil {
		t.Fatalf("no %s in %s", name, fields)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// Each rule charges what the provider reports. The 40 bytes of the message are 10 tokens, and those of the
// system prompt 5.
func TestLimits(t *testing.T) {
	t.Parallel()
	const (
		message = `{"role": "user", "content": "abcdefghijklmnopqrstuvwxyzabcdefghijkl"}`
		system  = `"abcdefghijklmnopqr"`
		inList  = `, "messages": [{"role": "system", "content": ` + system + `}, ` + message + `]`
		beside  = `, "system": ` + system + `, "messages": [` + message + `]`
		usage   = `, "stream": true, "stream_options": {"include_usage": true}`
	)
	for _, c := range []struct {
		name, path, body, rule string
		want                   int
	}{
		{"chat", "/v1/chat/completions", `{"model": "m", "max_tokens": 700` + inList, "chat-day", 715},
		{"chat in a stream", "/v1/chat/completions", `{"model": "m", "max_completion_tokens": 7` + inList + usage, "chat-day", 22},
		{"money", "/v1/chat/completions", `{"model": "m", "max_tokens": 7` + inList, "chat-month", 17}, // 10/4 + 5/40 + 14
		{"no usage asked for", "/v1/chat/completions", `{"model": "m", "stream": true` + inList, "chat-day", 31},
		{"model", "/v1/chat/completions", `{"model": "m", "max_tokens": 7` + inList, "model-minute", 22},
		{"message", "/v1/messages", `{"model": "m", "max_tokens": 200` + beside, "messages-day", 10 + 1000 + 1},
		{"message in a stream", "/v1/messages", `{"model": "m", "max_tokens": 20, "stream": true` + beside, "messages-day", 10 + 100 + 1},
		{"azure", "/openai/deployments/fast/chat/completions", `{"max_tokens": 600` + inList, "azure-day", 615},
		{"not valid", "/v1/messages", `{"model": "m"`, "messages-day", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := start(t, 0) + c.path
			first, second := post(t.Context(), t, url, c.body+"}"), post(t.Context(), t, url, c.body+"}")
			if got := left(t, first, c.rule) - left(t, second, c.rule); got != c.want {
				t.Errorf("%d charged, want %d", got, c.want)
			}
		})
	}
}

// A model has one limit for all accounts, and a plan has a quota of its own.
func TestModelsAndPlans(t *testing.T) {
	t.Parallel()
	url := start(t, 0) + "/v1/chat/completions"
	ask := func(account, model string) answer {
		body := `{"model": "` + model + `", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}`
		return post(t.Context(), t, url, body, "Authorization", "Bearer of-"+account)
	}
	ask("ann", "m")
	if got := left(t, ask("bob", "m"), "model-minute"); got != 200_000-6-500 {
		t.Errorf("the model has %d left for another account, want 199,494", got)
	}
	if got := left(t, ask("bob", "n"), "model-minute"); got != 200_000-500 {
		t.Errorf("another model has %d left, want 199,500", got)
	}
	if got := left(t, ask("carl", "m"), "chat-day"); got != 20_000_000-20 {
		t.Errorf("the plan has %d left, want 19,999,980", got)
	}
}

// A request without a key of the file is refused, and an account is the name beside its key.
func TestKeys(t *testing.T) {
	t.Parallel()
	url := start(t, 0) + "/v1/messages"
	const body = `{"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}`
	if a := post(t.Context(), t, url, body, "Authorization", "Bearer of-nobody"); a.status != http.StatusUnauthorized {
		t.Errorf("an unknown key gets %d, want 401", a.status)
	}
	first := post(t.Context(), t, url, body)
	second := post(t.Context(), t, url, body, "Authorization", "", "X-Api-Key", "of-acme") // Anthropic's field
	if got := left(t, first, "messages-day") - left(t, second, "messages-day"); got == 0 {
		t.Error("the same key in another field is another account")
	}
}

// The slow model answers four requests at a time, and the next one when one of them has ended.
func TestSlowModel(t *testing.T) {
	t.Parallel()
	url := start(t, time.Hour) + "/v1/chat/completions"
	const body = `{"model": "slow", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 5 {
		want := http.StatusOK
		if i == 4 {
			want = http.StatusTooManyRequests
		}
		if a := post(ctx, t, url, body); a.status != want {
			t.Errorf("request %d: %d, want %d", i, a.status, want)
		}
	}
	cancel() // the clients disconnect
	for end := time.Now().Add(time.Minute); post(t.Context(), t, url, body).status != http.StatusOK; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the slots are not free")
		}
	}
}
