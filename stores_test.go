// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// edge is a store of a program: a memstore that can fail, and counts its calls.
type edge struct {
	*memstore.Store
	down  atomic.Bool
	takes atomic.Int64
}

func newEdge() *edge { return &edge{Store: memstore.New(memstore.Options{})} }

var errEdge = errors.New("the edge is down")

func (e *edge) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	e.takes.Add(1)
	if e.down.Load() {
		return false, errEdge
	}
	return e.Store.Take(ctx, now, charges)
}

func (e *edge) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if e.down.Load() {
		return errEdge
	}
	return e.Store.Peek(ctx, now, charges)
}

// withStores returns a Limiter with stores of the program.
func withStores(t *testing.T, stores map[string]limit.Store, yaml string) *diana.Limiter {
	t.Helper()
	v := config.DefaultVocabulary()
	for scope := range stores {
		v.Scopes = append(v.Scopes, scope)
	}
	c, err := v.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: quiet.Logger, Stores: stores}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Two limiters that share a store of the program keep one limit together, exactly.
func TestStoreOfAScope(t *testing.T) {
	t.Parallel()
	e := newEdge()
	const yaml = `[{url: /, rules: [{name: shared, scope: edge, rpu: 100, unit: day, algo: W}, {name: own, rpu: 1000, unit: day, algo: W}]}]`
	limiters := []*diana.Limiter{
		withStores(t, map[string]limit.Store{"edge": e}, yaml), withStores(t, map[string]limit.Store{"edge": e}, yaml),
	}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				d, err := limiters[i%2].Take(t.Context(), diana.Request{Path: "/"})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
				d.Done()
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 100 {
		t.Errorf("%d requests are allowed, want 100", allowed.Load())
	}
	var own int64
	for _, l := range limiters {
		own += l.Status().Rules[1].Allowed
	}
	if own != 100 {
		t.Errorf("the local rules have counted %d requests, want 100: a refused request must be refunded", own)
	}
}

// A request under several stores is charged in all of them or in none, whichever refuses.
func TestStoresAllOrNone(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, tight := range []string{"local", "east", "west", "global"} {
		limits := ""
		for _, scope := range []string{"local", "east", "west", "global"} {
			n := "10"
			if scope == tight {
				n = "3"
			}
			limits += "{name: " + scope + ", scope: " + scope + ", rpu: " + n + ", unit: day, algo: W}, "
		}
		l := withStores(t, map[string]limit.Store{"east": newEdge(), "west": newEdge()},
			"redis: {url: '"+r.URL()+"', prefix: "+tight+", timeout: 10s}\nlimits: [{url: /, rules: ["+strings.TrimSuffix(limits, ", ")+"]}]")
		testproc.Eventually(t, connected(l))
		if got := count(t, l, 10, diana.Request{Path: "/"}); got != 3 {
			t.Errorf("%s: %d requests are allowed, want 3", tight, got)
		}
		d, err := l.Peek(t.Context(), diana.Request{Path: "/"})
		if err != nil || d.Allowed || len(d.Verdicts) != 4 {
			t.Fatalf("%s: %+v, %v", tight, d, err)
		}
		for _, v := range d.Verdicts {
			want := int64(7)
			if v.Rule.Name == tight {
				want = 0
			}
			if v.Remaining != want {
				t.Errorf("%s: %d requests remain under %s, want %d", tight, v.Remaining, v.Rule.Name, want)
			}
		}
	}
}

// While a store fails, on_error decides, and the store is debited afterwards.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		onError string
		allowed int // of 10 while the store is down
		left    int // of 10 when it is back
	}{
		{"local", 4, 0}, {"share", 4, 0}, {"closed", 0, 4}, {"open", 10, 4},
	} {
		e := newEdge()
		l := withStores(t, map[string]limit.Store{"edge": e},
			"[{url: /, rules: [{name: r, scope: edge, rpu: 5, unit: day, algo: W, on_error: "+tc.onError+"}]}]")
		r := diana.Request{Path: "/"}
		if d := ask(t, l, r); !d.Allowed || d.Degraded {
			t.Errorf("%s: %+v", tc.onError, d)
		}
		e.down.Store(true)
		allowed := 0
		for range 10 {
			d, err := l.Take(t.Context(), r)
			if err != nil || !d.Degraded {
				t.Fatalf("%s: %+v, %v", tc.onError, d, err)
			}
			if d.Allowed {
				allowed++
			}
			d.Done()
		}
		e.down.Store(false)
		if left := count(t, l, 10, r); allowed != tc.allowed || left != tc.left {
			t.Errorf("%s: %d requests are allowed while the store is down and %d afterwards, want %d and %d",
				tc.onError, allowed, left, tc.allowed, tc.left)
		}
	}
}

// A store can replace the local one, and Redis.
func TestStoresReplaceScopes(t *testing.T) {
	t.Parallel()
	local, global := newEdge(), newEdge()
	l := withStores(t, map[string]limit.Store{"local": local, "global": global}, `
- {url: /a, rules: [{rpu: 2, unit: day, algo: W}]}
- {url: /b, rules: [{rpu: 3, unit: day, algo: W, scope: global}]}
`)
	if got := count(t, l, 5, diana.Request{Path: "/a"}); got != 2 || local.takes.Load() != 5 {
		t.Errorf("%d are allowed and the store was asked %d times, want 2 and 5", got, local.takes.Load())
	}
	if got := count(t, l, 5, diana.Request{Path: "/b"}); got != 3 || global.takes.Load() != 5 {
		t.Errorf("%d are allowed and the store was asked %d times, want 3 and 5", got, global.takes.Load())
	}
	if s := l.Status(); s.Degraded || s.Fallback != 0 {
		t.Errorf("degraded %v, %d requests without a store", s.Degraded, s.Fallback)
	}
}

// Reset reaches the store of the scope and the local memory of it.
func TestResetInAStore(t *testing.T) {
	t.Parallel()
	l := withStores(t, map[string]limit.Store{"edge": newEdge()},
		"[{url: /, rules: [{name: r, actor: account, scope: edge, rpu: 2, unit: day, algo: W}]}]")
	ann := diana.Request{Path: "/", Actors: map[string]string{"account": "ann"}}
	for range 2 {
		if got := count(t, l, 5, ann); got != 2 {
			t.Errorf("%d are allowed, want 2", got)
		}
		if err := l.Reset(t.Context(), "r", "ann"); err != nil {
			t.Error(err)
		}
	}
}

// A scope without a store is an error that names the rule and the scope.
func TestScopeWithoutStore(t *testing.T) {
	t.Parallel()
	c := &config.Config{Limits: []rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{{Name: "r", Scope: "edge", Limit: limit.Limit{N: 1, Unit: 1e9}}}}}}
	_, err := quiet.New(c)
	if err == nil || !strings.Contains(err.Error(), `rule "r": scope "edge" has no store, expected local, global or a scope of Options.Stores`) {
		t.Error(err)
	}
	o := quiet
	o.Stores = map[string]limit.Store{"edge": nil}
	if _, err := o.New(c); err == nil || !strings.Contains(err.Error(), `no store for the scope "edge"`) {
		t.Error(err)
	}
}

// Slots that requests took while their store was down are released, whatever on_error says.
func TestSlotsOfAStoreThatFails(t *testing.T) {
	t.Parallel()
	for _, onError := range []string{"open", "local", "share", "closed"} {
		e := newEdge()
		l := withStores(t, map[string]limit.Store{"edge": e},
			"[{url: /, rules: [{name: slots, scope: edge, rpu: 3, algo: C, on_error: "+onError+"}]}]")
		r := diana.Request{Path: "/"}
		e.down.Store(true)
		for range 10 {
			d, err := l.Take(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done()
		}
		e.down.Store(false)
		d, err := l.Peek(t.Context(), r)
		if err != nil || !d.Allowed || d.Verdicts[0].Remaining != 3 {
			t.Errorf("%s: %+v, %v, want 3 free slots", onError, d, err)
		}
	}
}

// The error of a request whose context has ended is that of the context, whatever the store says.
func TestStoreFailsAfterContext(t *testing.T) {
	t.Parallel()
	e := newEdge()
	l := withStores(t, map[string]limit.Store{"edge": e}, "[{url: /, rules: [{scope: edge, rpu: 3}]}]")
	e.down.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := l.Take(ctx, diana.Request{Path: "/"}); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("Take: %+v, %v", d, err)
	}
	if d, err := l.Peek(ctx, diana.Request{Path: "/"}); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("Peek: %+v, %v", d, err)
	}
}
