// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// A gateway keeps its share if the settings of Redis change while Redis is down. It must not take the
// whole limit because it has seen no other gateway yet.
func TestShareAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\n%s", r.URL(), timeout, fiveHundred)
	}
	var j journal
	a := open(t, j.options(), f.write("diana.yaml", text("500ms")))
	_ = limiter(t, text("500ms"))
	testproc.Eventually(t, func() bool { return a.Status().Gateways == 2 && !a.Status().Degraded })
	r.Kill()
	testproc.Eventually(t, func() bool { return a.Status().Degraded })
	f.write("diana.yaml", text("400ms"))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := count(t, a, 600, diana.Request{Path: "/"}); got != 250 {
		t.Errorf("one of two gateways let %d pass, want 250", got)
	}
}

// Slots stay held when the settings of Redis change.
func TestSlotsAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\nlimits: [{url: /, rules: [{rpu: 1, algo: C, scope: global}]}]", r.URL(), timeout)
	}
	l := open(t, quiet, f.write("diana.yaml", text("5s")))
	testproc.Eventually(t, connected(l))
	inside, err := l.Take(t.Context(), diana.Request{})
	if err != nil || !inside.Allowed || inside.Degraded {
		t.Fatalf("%v, %+v", err, inside)
	}
	f.write("diana.yaml", text("6s"))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, connected(l))
	left := func() (ms int64) { // of the lease
		keys, _ := r.Must("KEYS", "*").([]any)
		for _, key := range keys {
			if key, _ := key.(string); !strings.Contains(key, "calls:") && r.Must("TYPE", key) == "string" {
				ms, _ = r.Must("PTTL", key).(int64)
			}
		}
		return ms
	}
	before := left()
	testproc.Eventually(t, func() bool { last := before; before = left(); return before > last })
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("two requests hold the only slot")
	}
	testproc.Eventually(t, func() bool { return l.Status().Gateways == 1 })
	inside.Done()
	testproc.Eventually(t, func() bool { return ask(t, l, diana.Request{}).Allowed })
}

// A reload to a Redis that cannot be reached is logged with the reason, and one back to a
// Redis that answers is logged too. Requests see no failed call, so the probes count errors.
func TestLogOfRedisAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(url string) string { return fmt.Sprintf("redis: {url: %q}\n%s", url, fiveHundred) }
	var j journal
	l := open(t, j.options(), f.write("diana.yaml", text(r.URL())))
	lines := func(message string) int { return strings.Count(j.String(), message) }
	for round := 1; round <= 2; round++ {
		testproc.Eventually(t, connected(l))
		testproc.Eventually(t, func() bool { return lines("global limits are counted in Redis") == round })
		f.write("diana.yaml", text("redis://127.0.0.1:1"))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		testproc.Eventually(t, func() bool { return lines(`msg="Redis is out of reach`) == round })
		f.write("diana.yaml", text(r.URL()))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(j.String(), "connection refused") {
		t.Errorf("no reason in the log:\n%s", j.String())
	}
	if l.RedisErrors()["connection"] == 0 {
		t.Errorf("errors by kind: %v, want some of the kind connection", l.RedisErrors())
	}
}

// A gateway that refuses because Redis is down has a short Retry-After, and not a whole unit.
func TestRetryAfterOfClosed(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 5, scope: global, on_error: closed}]}")
	if d := ask(t, l, diana.Request{}); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("allowed %v, retry after %v; want a refusal for a second", d.Allowed, d.RetryAfter)
	}
}
