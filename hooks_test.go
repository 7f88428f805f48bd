// SPDX-License-Identifier: MIT

package diana_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// limiterOf is limiter for a program with options of its own.
func limiterOf(t testing.TB, o diana.Options, yaml string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = quiet.Logger
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestRefuse has a program write its own refusals. Other responses stay as they are.
func TestRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, diana.Options{Refuse: func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
			var names []string
			for i := range d.Verdicts {
				if d.Verdicts[i].Refused() {
					names = append(names, d.Verdicts[i].Rule.Name)
				}
			}
			got = append(got, fmt.Sprint(r.URL.Path, " ", d.Allowed, " ", d.RetryAfter, " ", names))
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "no")
		}}, `
- {url: /once, rules: [{name: day, unit: day, rpu: 1, algo: W}, {name: none, rpu: 0, mode: shadow}]}
- {url: /never, rules: [{name: never, rpu: 0}]}
- {url: /other, rules: [{rpu: 0}], divert: {body: busy}}
- {url: /slow, rules: [{name: slow, rpu: 1, unit: 10s, algo: LB, queue: 1}]}
`)
		for _, tc := range []struct {
			path  string
			code  int
			body  string
			retry string
		}{
			{"/once", 200, "upstream", ""},
			{"/once", 418, "no", "86400"},
			{"/never", 418, "no", ""},
			{"/other", 200, "busy", ""},
			{"/a%2f../b", 400, "", ""},
			{"/slow", 200, "upstream", ""},
			{"/slow", 418, "no", "1"}, // its context ends
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w := serve(l, httptest.NewRequestWithContext(ctx, "GET", tc.path, nil))
			cancel()
			h := w.Header()
			if w.Code != tc.code || tc.body != "" && w.Body.String() != tc.body || h.Get("Retry-After") != tc.retry {
				t.Errorf("%s: %d %q, Retry-After %q", tc.path, w.Code, w.Body, h.Get("Retry-After"))
			}
			if w.Code == 418 && (h.Get("Cache-Control") != "no-store" || h.Get("RateLimit") == "" || h.Get("RateLimit-Policy") == "") {
				t.Errorf("%s: %v", tc.path, h)
			}
		}
		want := []string{"/once false 24h0m0s [day]", "/never false 0s [never]", "/slow false 0s []"}
		if !slices.Equal(got, want) {
			t.Errorf("Refuse saw %q, want %q", got, want)
		}
	})
}

// TestOnDecision compares the decisions that a program sees with those that Take and Handler make.
func TestOnDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, diana.Options{OnDecision: func(d *diana.Decision) {
			got = append(got, fmt.Sprint(d.Allowed, " ", d.Delayed, " ", d.RetryAfter > 0, " ", len(d.Verdicts)))
		}}, `
- {url: /once, rules: [{unit: day, rpu: 1, algo: W}]}
- {url: /slow, rules: [{rpu: 1, unit: 10s, algo: LB, queue: 1}]}
- {url: /other, rules: [{rpu: 0}], divert: {body: busy}}
`)
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got = append(got, "next") })
		handle := func(path string, patience time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			l.Handler(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", path, nil))
		}
		take := func(path string, patience time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			d, _ := l.Take(ctx, diana.Request{Path: path})
			d.Done()
		}
		for _, ask := range []func(string, time.Duration){handle, take} {
			ask("/free", time.Hour)
			ask("/once", time.Hour)
			ask("/slow", time.Hour)
			ask("/slow", time.Hour)   // waits
			ask("/slow", time.Second) // its context ends
			ask("/a%2f../b", time.Hour)
			ask("/other", time.Hour)
			time.Sleep(time.Hour)
		}
		want := []string{
			"true 0s false 0", "next", "true 0s false 1", "next", "true 0s false 1", "next", "true 10s false 1", "next", "false 0s false 1",
			"true 0s false 0", "false 0s true 1", "true 0s false 1", "true 10s false 1", "false 0s false 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("saw %q\nwant %q", got, want)
		}
	})
}

// TestHooksPanic releases what a request holds when a hook panics.
func TestHooksPanic(t *testing.T) {
	t.Parallel()
	panics := false
	o := diana.Options{
		OnDecision: func(*diana.Decision) {
			if panics {
				panic(http.ErrAbortHandler)
			}
		},
		Refuse: func(http.ResponseWriter, *http.Request, *diana.Decision) { panic(http.ErrAbortHandler) },
	}
	l := limiterOf(t, o, "[{url: /, rules: [{rpu: 3, algo: C}]}, {url: /none, rules: [{rpu: 0}]}]")
	try := func(what string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	for range 5 {
		panics = true
		try("Take", func() { _, _ = l.Take(t.Context(), diana.Request{Path: "/"}) })
		try("Handler", func() { serve(l, httptest.NewRequest("GET", "/", nil)) })
		panics = false
		try("Refuse", func() { serve(l, httptest.NewRequest("GET", "/none", nil)) })
	}
	if n := slots(t, l, 5); n != 3 {
		t.Errorf("%d slots are free, want 3", n)
	}
}

// slots returns how many of n requests have a slot at once.
func slots(t testing.TB, l *diana.Limiter, n int) (free int) {
	t.Helper()
	for range n {
		d, err := l.Take(t.Context(), diana.Request{Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done()
		if d.Allowed {
			free++
		}
	}
	return free
}

// TestTakeEndsOnError ends a Decision with the error of Take. Ending it again does nothing.
func TestTakeEndsOnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- {url: /, rules: [{rpu: 3, algo: C}]}
- {url: /slow, rules: [{rpu: 1, unit: 10s, algo: LB, queue: 1}]}
- {url: /turn, rules: [{rpu: 1, unit: 5m, algo: TB, burst: 1, wait: 10m}]}
`)
		count(t, l, 1, diana.Request{Path: "/slow"})
		count(t, l, 1, diana.Request{Path: "/turn"})
		for _, path := range []string{"/slow", "/turn", "/a%2f../b"} {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				d, err := l.Take(ctx, diana.Request{Path: path})
				cancel()
				if err == nil || d.Allowed || d.RetryAfter != 0 || d.Verdicts != nil {
					t.Fatalf("%s: %+v, %v", path, d, err)
				}
				next, err := l.Take(t.Context(), diana.Request{Path: "/"})
				if err != nil || !next.Allowed {
					t.Fatalf("%s: it holds a slot: %v", path, err)
				}
				d.SetStatus(200)
				d.Done()
				d.Done()
				if n := slots(t, l, 5); n != 2 {
					t.Fatalf("%s: %d slots are free beside one that is held, want 2", path, n)
				}
				next.Done()
			}
		}
		if n := slots(t, l, 5); n != 3 {
			t.Errorf("%d slots are free, want 3", n)
		}
	})
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// TestTakeReadsNoBody has requests wait, whose bodies Take leaves alone.
func TestTakeReadsNoBody(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{
		"{url: /, rules: [{rpu: 1, algo: LB}]}", "{url: /, rules: [{rpu: 1, algo: W, wait: 1m}]}",
		"{url: /, rules: [{rpu: 1, algo: LB}, {rpu: 1, unit: 2s, algo: W, wait: 1m}]}",
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, yaml)
			for i := range 3 {
				r := httptest.NewRequest("POST", "/", unreadable{t})
				r.ContentLength = 4
				d, err := l.Take(t.Context(), diana.Request{Method: "POST", Path: "/", HTTP: r})
				if err != nil || !d.Allowed || (d.Delayed > 0) != (i > 0) {
					t.Errorf("%s: %v, delayed %v, %v", yaml, d.Allowed, d.Delayed, err)
				}
				d.Done()
			}
			r := httptest.NewRequest("POST", "/", strings.NewReader("body")) // Handler reads it once
			l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); string(body) != "body" || err != nil {
					t.Errorf("next reads %q, %v", body, err)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
		})
	}
}

// TestOnDone has parallel requests charge one counter. Their moments are in the order of the charges.
func TestOnDone(t *testing.T) {
	t.Parallel()
	type moments struct{ charged, status, released, remaining int64 }
	var mu sync.Mutex
	var all []moments
	var inOrder atomic.Bool
	inOrder.Store(true)
	l := limiterOf(t, diana.Options{InOrder: inOrder.Load, OnDone: func(d *diana.Decision) {
		charged, status, _, released := d.Moments()
		if d.Writer() == nil || d.Request().Path != "/" || len(d.Verdicts) != 2 {
			t.Errorf("decision of %v by %d rules", d.Request(), len(d.Verdicts))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, moments{charged, status, released, d.Verdicts[0].Remaining})
	}}, "url: /\nrules: [{name: day, algo: W, unit: day, rpu: 100000}, {name: slots, algo: C, rpu: 100}]")
	h := l.Handler(http.NotFoundHandler())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 300 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		})
	}
	running.Wait()
	slices.SortFunc(all, func(a, b moments) int { return cmp.Compare(a.charged, b.charged) })
	for i, m := range all {
		if m.remaining != int64(100000-i-1) || m.charged == 0 || m.status != 0 || m.released <= m.charged {
			t.Fatalf("decision %d: %+v", i, m)
		}
	}
	if len(all) != 8*300 {
		t.Errorf("%d decisions", len(all))
	}
	last := all[len(all)-1]
	all = nil
	inOrder.Store(false)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if m := all[0]; m.charged <= last.charged || m.released < m.charged || m.remaining != last.remaining-1 {
		t.Errorf("without an order: %+v after %+v", m, last)
	}
}
