// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
)

// Settings for Redis that are changed while it is away do not make a gateway think that it
// is alone, and may use the whole limit.
func TestShareAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\n%s", r.URL(), timeout, fiveHundred)
	}
	var j journal
	a := open(t, j.options(), f.write("diana.yaml", text("500ms")))
	_ = limiter(t, text("500ms"))
	poll(t, func() bool { return a.Status().Gateways == 2 && !a.Status().Degraded })
	r.Kill()
	poll(t, func() bool { return a.Status().Degraded })
	f.write("diana.yaml", text("400ms"))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := count(t, a, 600, diana.Request{Path: "/"}); got != 250 {
		t.Errorf("one of two gateways let %d pass, want 250", got)
	}
}

// Who is inside under a rule of concurrency is counted on when settings for Redis change.
func TestPlacesAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\nlimits: [{url: /, rules: [{rpu: 1, algo: C, scope: global}]}]", r.URL(), timeout)
	}
	l := open(t, quiet, f.write("diana.yaml", text("5s")))
	poll(t, connected(l))
	inside, err := l.Take(t.Context(), diana.Request{})
	if err != nil || !inside.Allowed || inside.Degraded {
		t.Fatalf("%v, %+v", err, inside)
	}
	f.write("diana.yaml", text("6s"))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	poll(t, connected(l))
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
	poll(t, func() bool { last := before; before = left(); return before > last })
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("two are inside")
	}
	poll(t, func() bool { return l.Status().Gateways == 1 })
	inside.Done()
	poll(t, func() bool { return ask(t, l, diana.Request{}).Allowed })
}
