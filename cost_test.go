// SPDX-License-Identifier: MIT

package diana_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/diana-limiter/diana"
)

// A request takes what it costs, of each algorithm.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		l := limiter(t, "{url: /, rules: [{algo: "+algo+", unit: day, rpu: 10, cost: 3}]}")
		if n := count(t, l, 10, diana.Request{}); n != 3 {
			t.Errorf("%s: %d of cost 3 pass, want 3", algo, n)
		}
	}
	l := limiter(t, "{url: /, rules: [{algo: C, rpu: 10, cost: 3}]}")
	var inside []diana.Decision
	for range 3 {
		d, err := l.Take(t.Context(), diana.Request{})
		if err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		inside = append(inside, d)
	}
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("a fourth of cost 3 has found 3 of 10 places")
	}
	inside[1].Done()
	if !ask(t, l, diana.Request{}).Allowed {
		t.Error("no 3 places are free after one has left")
	}
}

// A filter in front says what a request costs, and the client cannot.
func TestWithCost(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 100, cost: 'header:X-Cost'}]}")
	left := func(h http.Handler) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Cost", "0")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("RateLimit")
	}
	var seen string
	h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("X-Cost") }))
	filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, diana.WithCost(diana.WithCost(r, "X-Other", 9), "x-cost", 40))
	})
	for i, row := range []struct {
		h    http.Handler
		want string
		seen string
	}{
		{h, `"/ all TB 100/day";r=99;t=86400`, "0"},
		{filter, `"/ all TB 100/day";r=59;t=85536`, "40"},
		{filter, `"/ all TB 100/day";r=19;t=50976`, "40"},
	} {
		if got := left(row.h); got != row.want || seen != row.seen {
			t.Errorf("request %d: %s and the header is %q, want %s and %q", i, got, seen, row.want, row.seen)
		}
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 20}}); d.Allowed {
		t.Error("20 pass where 19 are left")
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 19}}); !d.Allowed {
		t.Error("19 do not pass where 19 are left")
	}
	r := diana.WithCost(httptest.NewRequest("GET", "/", nil), "X-Cost", 5)
	if e, err := l.Explain(diana.Request{Method: "GET", Path: "/", HTTP: r}); err != nil || e[0].Cost != 5 {
		t.Errorf("explained as a cost of %d, want 5", e[0].Cost)
	}
}
