// SPDX-License-Identifier: MIT

package upstream

import (
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"
)

// The pauses double, only a probe prolongs them, and one upstream always gets requests.
func TestPauses(t *testing.T) {
	t.Parallel()
	var urls []*url.URL
	for _, host := range []string{"a", "b"} {
		urls = append(urls, &url.URL{Scheme: "http", Host: host})
	}
	p := NewPool(urls, Timeouts{}, slog.New(slog.DiscardHandler))
	now := time.Unix(0, 0)
	a, b := p.members[0], p.members[1]
	for range FailuresInRow {
		a.fail(false, now)
	}
	picked := func() string {
		m, probe := p.pick(nil, now)
		return fmt.Sprint(m.to.Host, probe)
	}
	want := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			if got := picked(); got != name {
				t.Errorf("%s: %s, want %s", when, got, name)
			}
		}
	}
	want("in the pause", "bfalse", "bfalse", "bfalse")
	a.fail(false, now) // a request that was in flight
	for pause := firstPause; pause <= 2*longestPause; pause *= 2 {
		now = now.Add(min(pause, longestPause) - 1)
		want("before the end of the pause", "bfalse")
		now = now.Add(1)
		if m, probe := p.pick(b, now); m != a || !probe {
			t.Fatalf("after %v: no probe", pause)
		}
		want("during the probe", "bfalse", "bfalse")
		a.fail(true, now)
	}
	for range FailuresInRow {
		b.fail(false, now)
	}
	want("both are out of service", "bfalse", "bfalse") // b's pause ends first
	if !b.succeed() {
		t.Error("b is not back")
	}
	want("b is back", "bfalse", "bfalse")
}
