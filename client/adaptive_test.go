// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/client"
	"github.com/diana-limiter/diana/config"
)

// server is an upstream with a few workers, whose answers say nothing about limits. A twentieth of its
// connections break.
type server struct {
	workers chan struct{}
	mu      sync.Mutex
	calls   int
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.calls++
	broken := s.calls%20 == 0
	s.mu.Unlock()
	if broken {
		return nil, errors.New("broken")
	}
	s.workers <- struct{}{}
	time.Sleep(20 * time.Millisecond)
	<-s.workers
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("x"))}, nil
}

// A program's own calls adapt to a slow server.
func TestAdaptive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse("test.yaml", []byte("- {url: /, rules: [{name: ac, algo: AC, rpu: 1000}]}"))
		if err != nil {
			t.Fatal(err)
		}
		l, err := diana.Options{}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		transport := &client.Transport{Limiter: l, Base: &server{workers: make(chan struct{}, 4)}, MaxWait: -1}
		var all sync.WaitGroup
		for range 8000 {
			all.Go(func() {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream/", nil)
				response, err := transport.RoundTrip(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			})
			time.Sleep(2 * time.Millisecond)
		}
		s, _ := l.RuleStatus("ac")
		if s.Limit > 12 || s.Refused == 0 {
			t.Errorf("a limit of %d and %d refusals, expected about 4 slots", s.Limit, s.Refused)
		}
		all.Wait()
		_, verdicts, err := l.PeekActor(t.Context(), "ac", "all")
		if s, _ := l.RuleStatus("ac"); err != nil || verdicts[0].Remaining != s.Limit {
			t.Errorf("%v, %v: slots are held after all calls", verdicts, err)
		}
	})
}
