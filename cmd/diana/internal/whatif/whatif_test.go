// SPDX-License-Identifier: MIT

package whatif

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/config"
)

// newWhatIf returns a WhatIf after so many requests to a limiter.
func newWhatIf(t *testing.T, yaml string, requests int) (*WhatIf, *diana.Limiter) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	var l *diana.Limiter
	o := Options{
		Vocabulary: config.DefaultVocabulary(), Config: func() *config.Config { return l.Config() },
		Status: func() diana.Status { return l.Status() }, Rejected: func() map[string]int64 { return l.Rejected() },
		Accept: accept, Stranger: func(r *http.Request) bool { return r.RemoteAddr != operator },
	}
	o.Ring = history.New(history.Options{Requests: 500, Vocabulary: o.Vocabulary, Config: o.Config})
	of := diana.Options{Logger: slog.New(slog.DiscardHandler)}
	o.Ring.Observe(&of)
	if l, err = of.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for i := range requests {
		d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: fmt.Sprint("/", i), Actors: map[string]string{"ip": "192.0.2.1"}})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	return New(o), l
}

func accept(*config.Config) error { return nil }

func post(w *WhatIf, path, body string) *httptest.ResponseRecorder {
	return postFrom(w, operator, path, body)
}

const operator = "127.0.0.1:1"

func postFrom(w *WhatIf, from, path, body string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	w.Register(mux)
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.RemoteAddr = from
	out := httptest.NewRecorder()
	mux.ServeHTTP(out, r)
	return out
}

const (
	limits  = "limits: [{url: /, rules: [{name: each, actor: ip, unit: day, rpu: %d}]}]"
	change  = `{"text": "limits: [{url: /, rules: [{name: each, actor: ip, unit: day, rpu: 1}]}]"}`
	remote  = "remote: {url: 'file:///nowhere/limits.yaml'}\n"
	metrics = `{"text": "max_keys: 5\nremote: {url: 'file:///nowhere/limits.yaml'}"}`
)

// A replay is bounded in time.
func TestBounded(t *testing.T) {
	t.Parallel()
	w, _ := newWhatIf(t, fmt.Sprintf(limits, 5), 300)
	if got := post(w, "/api/v1/whatif", change); got.Code != 200 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	w.options.Longest = time.Nanosecond
	if got := post(w, "/api/v1/whatif", change); got.Code != 503 || !strings.Contains(got.Body.String(), "request 0 of 300") {
		t.Errorf("without time: %d %s", got.Code, got.Body)
	}
}

// Under another limit the gateway would have allowed requests that it has refused. Nobody knows their latency, so adaptive
// concurrency learns nothing of them.
func TestLatencyOfRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rules = "limits: [{url: /, rules: [{name: slow, algo: AC, rpu: %d}]}]"
		w, l := newWhatIf(t, fmt.Sprintf(rules, 5), 0)
		h := w.options.Ring.Filter(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) })))
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		time.Sleep(time.Second)
		out := post(w, "/api/v1/whatif", fmt.Sprintf(`{"text": %q}`, fmt.Sprintf(rules, 20)))
		for _, n := range regexp.MustCompile(`"baseline_seconds":([0-9.e-]+)`).FindAllStringSubmatch(out.Body.String(), -1) {
			if baseline, err := strconv.ParseFloat(n[1], 64); err != nil || baseline < 0.05 {
				t.Errorf("a latency of %s s without a queue, want at least 0.05: %s", n[1], out.Body)
			}
		}
	})
}

// While a text of a stranger is read or replayed, an operator waits for it, and then goes before other strangers.
func TestStrangersKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const somebody = "192.0.2.1:1"
		w, _ := newWhatIf(t, fmt.Sprintf(limits, 5), 10)
		begin := func(from, path string) chan *httptest.ResponseRecorder {
			ended := make(chan *httptest.ResponseRecorder, 1)
			go func() { ended <- postFrom(w, from, path, change) }()
			synctest.Wait()
			return ended
		}
		busy := func(what, path string) {
			t.Helper()
			if out := postFrom(w, somebody, path, change); out.Code != http.StatusTooManyRequests {
				t.Errorf("%s: a stranger %s gets %d %s", path, what, out.Code, out.Body)
			}
		}
		read := make(chan struct{})
		for _, path := range []string{"/api/v1/validate", "/api/v1/whatif"} {
			w.options.Accept = func(*config.Config) error { <-read; return nil }
			first, waiting := begin(somebody, path), begin(operator, path)
			busy("beside another", path)
			read <- struct{}{} // the stranger's
			synctest.Wait()
			busy("before the operator", path)
			read <- struct{}{} // the operator's
			for who, ended := range map[string]chan *httptest.ResponseRecorder{"the stranger": first, "the operator": waiting} {
				if out := <-ended; out.Code != http.StatusOK {
					t.Errorf("%s: %s gets %d %s", path, who, out.Code, out.Body)
				}
			}
		}
		w.options.Accept = accept
		w.running.enter(t.Context(), false) // a replay
		busy("beside a replay", "/api/v1/whatif")
		waiting := begin(operator, "/api/v1/whatif")
		w.running.leave()
		if out := <-waiting; out.Code != http.StatusOK {
			t.Errorf("the operator after a replay gets %d %s", out.Code, out.Body)
		}
	})
}

// Behind a remote configuration a document has limits alone, or is a whole configuration.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w, _ := newWhatIf(t, remote+fmt.Sprintf(limits, 5), 10)
	if got := post(w, "/api/v1/whatif", change); got.Code != 200 || !strings.Contains(got.Body.String(), `"diff":["rule \"each\": rpu 5 → 1"]`) {
		t.Errorf("a document: %d %.200s", got.Code, got.Body)
	}
	if got := post(w, "/api/v1/whatif", metrics); got.Code != 200 || !strings.Contains(got.Body.String(), `"diff":["max_keys 1000000 → 5"]`) {
		t.Errorf("a whole configuration: %d %.200s", got.Code, got.Body)
	}
	w, _ = newWhatIf(t, fmt.Sprintf(limits, 5), 10)
	w.options.Accept = func(*config.Config) error { return config.Errors{{Line: 3, Column: 4, Message: "no"}} }
	if got := post(w, "/api/v1/validate", change); !strings.Contains(got.Body.String(), `{"valid":false,"errors":[{"line":3,"column":4,"message":"no"}]`) {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// The notes say what the replay cannot know.
func TestNotes(t *testing.T) {
	t.Parallel()
	w, l := newWhatIf(t, fmt.Sprintf(limits, 5), 501)
	w.options.Ring.Note(history.Reset)
	next, err := config.Parse("next.yaml", []byte(strings.Replace(fmt.Sprintf(limits, 9), "name: each", "name: each, scope: global, on_error: local", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Update(next); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	_, _ = l.Take(t.Context(), diana.Request{Path: "/%zz/%2e%2e%2f\x00"})
	result, err := w.Compute(t.Context(), next, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"of the gateway's 3 decisions", "are not remembered", "hashes", "reset 1 times", "has changed 1 times",
		"as by one gateway", "without Redis", "rejected before any rule", "has no response", "may come again",
	} {
		if !slices.ContainsFunc(result.Notes, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("no note says %q: %q", want, result.Notes)
		}
	}
}
