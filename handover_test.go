// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// journaled returns a Limiter with a configuration, and its log.
func journaled(t *testing.T, yaml string) (*diana.Limiter, *journal) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	l, err := j.options().New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, j
}

// handOver passes the counters of one Limiter to another.
func handOver(t *testing.T, from, to *diana.Limiter) {
	t.Helper()
	old, next := net.Pipe()
	took := make(chan error, 1)
	go func() { took <- to.TakeOver(next) }()
	if err := from.HandOver(old); err != nil {
		t.Fatal(err)
	}
	if err := <-took; err != nil {
		t.Fatal(err)
	}
}

// Two Limiters keep one limit after a hand-over. A log line names the rules whose counters begin again.
func TestHandOver(t *testing.T) {
	t.Parallel()
	const kept = "{name: kept, rpu: 5, unit: 1h}, {name: slots, algo: C, rpu: 2}, {name: global, rpu: 5, unit: 1h, scope: global}"
	old, _ := journaled(t, "url: /\nrules: ["+kept+", {name: changed, rpu: 5, unit: 1h}, {name: gone, rpu: 9}]")
	next, log := journaled(t, "url: /\nrules: ["+kept+", {name: changed, rpu: 5, unit: 1m}]")
	takes := func(l *diana.Limiter) diana.Decision {
		d, err := l.Take(context.Background(), device("/", "a"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	held := takes(old)
	handOver(t, old, next)
	if !strings.Contains(log.String(), "rules=\"[changed gone]\"") {
		t.Error(log)
	}
	other := takes(next)
	if !held.Allowed || !other.Allowed || ask(t, next, device("/", "a")).Allowed || ask(t, old, device("/", "a")).Allowed {
		t.Error("want two slots")
	}
	held.Done()
	other.Done()
	if a, b := count(t, old, 2, device("/", "a")), count(t, next, 3, device("/", "a")); a != 2 || b != 1 {
		t.Errorf("%d and %d of the 3 that are left", a, b)
	}
	if ask(t, old, device("/", "a")).Allowed {
		t.Error("over the limit")
	}
}

// While Redis is away the successor has the share of the gateway before it, and what that has used. Redis gets the sum.
func TestHandOverWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 1s}\nlimits: [{url: /, rules: [{rpu: 10, unit: 744h, scope: global}]}]", r.URL())
	all := sharing(t, 2, yaml)
	old, other := all[0], all[1]
	x := device("/", "a")
	count(t, old, 2, x)
	r.Freeze()
	ask(t, old, x) // nobody knows whether Redis has counted it
	testproc.Eventually(t, func() bool { return old.Status().Degraded })
	next, _ := journaled(t, yaml)
	handOver(t, old, next)
	if a, b, c := count(t, next, 1, x), count(t, old, 1, x), count(t, next, 1, x); a+b != 2 || c != 0 {
		t.Errorf("%d, %d and %d allowed, want 1, 1 and 0", a, b, c)
	}
	r.Thaw()
	for _, l := range []*diana.Limiter{old, next} {
		if l == next {
			old.Close()
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	testproc.Eventually(t, connected(other))
	if n := count(t, other, 10, x); n != 5 {
		t.Errorf("%d allowed, want 5", n)
	}
}

// A Limiter that takes nothing over begins again, and the old one continues.
func TestHandOverIsRejected(t *testing.T) {
	t.Parallel()
	const yaml = "url: /\nrules: [{rpu: 2, unit: 1h}]"
	old, _ := journaled(t, yaml)
	next, _ := journaled(t, yaml)
	count(t, next, 1, device("/", "a")) // too late
	a, b := net.Pipe()
	rejected := make(chan error, 1)
	go func() {
		rejected <- next.TakeOver(b)
		b.Close()
	}()
	if err := old.HandOver(a); err != nil {
		t.Error(err)
	}
	if err := <-rejected; err == nil {
		t.Error("a Limiter that has counted takes over")
	}
	if a, b := count(t, old, 3, device("/", "a")), count(t, next, 2, device("/", "a")); a != 2 || b != 1 {
		t.Errorf("the old one allows %d, want 2, and the new one %d, want 1", a, b)
	}
}
