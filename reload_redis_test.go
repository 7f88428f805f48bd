// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
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
