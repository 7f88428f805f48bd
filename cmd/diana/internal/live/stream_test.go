// SPDX-License-Identifier: MIT

package live

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// newTestLive returns a Live of a limiter with one rule.
func newTestLive(t *testing.T, rule string) (*Live, *diana.Limiter) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte("{url: /, rules: [{name: r, "+rule+"}]}"))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return New(Options{Limiter: limiter, Memory: func() int64 { return 0 }}), limiter
}

// So many clients can follow, and one more gets 503 until another one has gone.
func TestMostReaders(t *testing.T) {
	t.Parallel()
	l, _ := newTestLive(t, "rpu: 1")
	mux := http.NewServeMux()
	l.Register(mux)
	s := httptest.NewServer(mux)
	defer s.Close()
	defer l.streams.close()
	follow := func(ctx context.Context) int {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/live/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			_ = answer.Body.Close()
			return answer.StatusCode
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		line, err := bufio.NewReader(answer.Body).ReadString('\n')
		if err != nil || line != "event: live\n" {
			t.Errorf("the stream begins with %q, %v", line, err)
		}
		return http.StatusOK
	}
	first, leave := context.WithCancel(t.Context())
	for i := range mostReaders {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		if status := follow(ctx); status != http.StatusOK {
			t.Fatalf("client %d: %d", i, status)
		}
	}
	if status := follow(t.Context()); status != http.StatusServiceUnavailable {
		t.Errorf("one more client: %d", status)
	}
	leave()
	for end := time.Now().Add(10 * time.Second); follow(t.Context()) != http.StatusOK; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the place of a client that has gone stays taken")
		}
	}
}

// A reader that takes no snapshot misses some, and delays nobody.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	var s streams
	slow, quick := s.add(query{rules: 1}), s.add(query{rules: 2})
	n := 0
	for i := range 5 {
		s.send(func(query) []byte { n++; return []byte(strings.Repeat("x", i+1)) })
		if got := <-quick.next; len(got) != i+1 {
			t.Errorf("snapshot %d has %d bytes", i, len(got))
		}
	}
	if got := <-slow.next; len(got) != 1 || len(slow.next) != 0 {
		t.Errorf("the slow reader has a snapshot of %d bytes and %d more", len(got), len(slow.next))
	}
	if n != 6 {
		t.Errorf("%d snapshots were encoded, want one for the slow reader and five for the quick one", n)
	}
	s.close()
	if _, open := <-quick.next; open || s.add(query{}) != nil {
		t.Error("a stream goes on after the end")
	}
}

// A snapshot says what adaptive concurrency has shed.
func TestSnapshotOfOverload(t *testing.T) {
	t.Parallel()
	l, limiter := newTestLive(t, "algo: AC, rpu: 1, priority: 'client:P', priorities: [high, low]")
	for range 3 {
		if _, err := limiter.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"priority": "low"}}); err != nil {
			t.Fatal(err)
		}
	}
	l.sample(time.Now())
	s := l.snapshot(query{rules: 1})
	if len(s.Rules) != 1 || s.Rules[0].Shed["low"] != 2 || s.Rules[0].Limit != 1 {
		t.Errorf("%+v, expected two shed of the priority low", s.Rules)
	}
}
