// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
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

// post sends a request with the key of an account in all fields that the providers read.
func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
		r.Header.Set(name, "Bearer of-acme")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// left returns what a rule had left when a response began.
func left(t *testing.T, answer *http.Response, name string) int {
	t.Helper()
	fields := strings.Join(answer.Header["Ratelimit"], ", ")
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
		{"chat in a stream", "/v1/chat/completions", `{"model": "m", "max_completion_tokens": 7` + inList + usage, "chat-minute", 22},
		{"no usage", "/v1/chat/completions", `{"model": "m", "stream": true` + inList, "chat-day", 500},
		{"message", "/v1/messages", `{"model": "m", "max_tokens": 200` + beside, "messages-day", 10 + 1000 + 1},
		{"message in a stream", "/v1/messages", `{"model": "m", "max_tokens": 20, "stream": true` + beside, "messages-day", 10 + 100 + 1},
		{"azure", "/openai/deployments/fast/chat/completions", `{"max_tokens": 600` + inList, "azure-day", 615},
		{"slow model", "/openai/deployments/slow/chat/completions", `{"max_tokens": 1` + inList, "slow-minute", 16},
		{"not valid", "/v1/messages", `{"model": "m"`, "messages-day", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := start(t, 0) + c.path
			first := post(t, url, c.body+"}")
			text, err := io.ReadAll(first.Body)
			if err != nil {
				t.Fatal(err)
			}
			second := post(t, url, c.body+"}")
			if got := left(t, first, c.rule) - left(t, second, c.rule); got != c.want {
				t.Errorf("%d charged, want %d for %s", got, c.want, text)
			}
		})
	}
}

// The slow model answers four requests at a time, and the next one when one of them has ended.
func TestSlowModel(t *testing.T) {
	t.Parallel()
	url := start(t, time.Hour) + "/openai/deployments/slow/chat/completions"
	const body = `{"stream": true, "messages": [{"role": "user", "content": "Hello"}]}`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		defer answer.Body.Close()
		if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if answer := post(t, url, body); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the fifth request: %s", answer.Status)
	}
	cancel() // the clients disconnect
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		answer := post(t, url, body)
		if answer.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the slots are not free: %s", answer.Status)
		}
	}
}
