// SPDX-License-Identifier: MIT

package diana_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
)

// The fields of an answer say the length and the end of the present window. A total has neither, and a
// refusal by it no Retry-After.
func TestFieldsOfCalendars(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC) // midnight in Berlin, before a day of 23 hours
	l := clocked(t, `
- url: /
  rules:
    - {name: day, algo: W, rpu: 5, unit: day, zone: Europe/Berlin}
    - {name: month, algo: W, rpu: 999999999999999, unit: month}
    - {name: all, algo: W, rpu: 2, unit: total}
`, &now)
	for _, want := range []struct {
		at                       string
		status                   int
		policy, limit, retryHint string
	}{
		{"2026-03-28T23:00:00Z", 200, `"day";q=5;w=82800, "month";q=999999999999999;w=2678400, "all";q=2`,
			`"day";r=4;t=82800, "month";r=999999999999998;t=262800, "all";r=1`, ""},
		{"2026-04-01T00:00:00Z", 200, `"day";q=5;w=86400, "month";q=999999999999999;w=2592000, "all";q=2`,
			`"day";r=4;t=79200, "month";r=999999999999998;t=2592000, "all";r=0`, ""},
		{"2026-04-01T00:00:00Z", 503, `"day";q=5;w=86400, "month";q=999999999999999;w=2592000, "all";q=2`,
			`"day";r=4;t=79200, "month";r=999999999999998;t=2592000, "all";r=0`, ""},
	} {
		var err error
		if now, err = time.Parse(time.RFC3339, want.at); err != nil {
			t.Fatal(err)
		}
		w := serve(l, httptest.NewRequest("GET", "/", nil))
		h := w.Header()
		if w.Code != want.status || h.Get("RateLimit-Policy") != want.policy || h.Get("RateLimit") != want.limit || h.Get("Retry-After") != want.retryHint {
			t.Errorf("%s: %d, policy %s, limit %s, retry after %q,\nwant %d, policy %s, limit %s", want.at,
				w.Code, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After"), want.status, want.policy, want.limit)
		}
		if want.status == 503 && !strings.Contains(w.Body.String(), "no wait") && !strings.Contains(w.Body.String(), "never") {
			t.Errorf("the refusal does not say that no wait helps: %s", w.Body)
		}
	}
	var units []float64
	for _, r := range l.Status().Rules {
		units = append(units, r.UnitSeconds)
	}
	if len(units) != 3 || units[0] != 86400 || units[1] != 30*86400 || units[2] != 0 {
		t.Errorf("the units are %v seconds, want those of the present windows", units)
	}
}

// A total never ends, and a reload of the same rule keeps what it has counted. Another zone or unit
// is another counter.
func TestReloadKeepsCalendars(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const total, month = "{name: total, algo: W, rpu: 3, unit: total}", "{name: month, algo: W, rpu: 3, unit: month}"
	text := func(rules string) string { return "{url: /, rules: [" + rules + "]}" }
	l := clocked(t, text(total), &now)
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed, want 3", n)
	}
	now = now.AddDate(30, 0, 0)
	if d := ask(t, l, diana.Request{}); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("after 30 years: %+v", d)
	}
	update(t, l, text(strings.Replace(total, "rpu: 3", "rpu: 5", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed by a larger total, want 2 more", n)
	}
	reset(t, l, "total", "all")
	if n := count(t, l, 9, diana.Request{}); n != 5 {
		t.Errorf("%d allowed after a reset, want 5", n)
	}
	update(t, l, text(month))
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed by a month, want 3", n)
	}
	update(t, l, text(strings.Replace(month, "month}", "month, zone: UTC}", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 0 {
		t.Errorf("%d allowed by a month in UTC, which is no other, want none", n)
	}
	update(t, l, text(strings.Replace(month, "month}", "month, zone: Asia/Tokyo}", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed by a month in Tokyo, want 3", n)
	}
}

// Gateways share a total, and each enforces its share of it while Redis is down.
func TestTotalWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "1s", `
- url: /
  rules: [{name: total, algo: W, rpu: 100, unit: total, scope: global}, {name: year, algo: W, rpu: 1000, unit: year, zone: Asia/Tokyo, scope: global}]
`)
	if got := crowd(t, all, 4, 5, diana.Request{}); sum(got) != 40 {
		t.Fatalf("%v allowed, want 40", got)
	}
	r.Kill()
	if n := count(t, all[0], 60, diana.Request{}); n != 30 {
		t.Errorf("%d allowed without Redis, want what the gateway has not yet used of its 50", n)
	}
	if d := ask(t, all[0], diana.Request{}); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("without Redis: %+v, want a refusal for a second, because Redis may be back soon", d)
	}
}
