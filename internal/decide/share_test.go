// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// Requests that a gateway has allowed alone before it learned of a loss count in the share that applies after that.
func TestShareAfterDoubt(t *testing.T) {
	t.Parallel()
	local := memstore.New(memstore.Options{})
	d := New(Options{Local: local, Logger: slog.New(slog.DiscardHandler), Failed: func(error) {}})
	defer d.Close()
	store, err := redisstore.Open(redisstore.Options{URL: redistest.Start(t).URL(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	testproc.Eventually(t, store.Up)
	set, err := plan.Compile([]rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{{
		Name: "a", Actor: []rule.Actor{rule.All}, Algorithm: limit.FixedWindow(), Limit: limit.Limit{N: 10, Unit: 24 * time.Hour},
		Scope: rule.Global, OnError: rule.Share,
	}}}}, rule.Identity{}, rule.Paths{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	redis := Redis{Store: store, Up: true, Gateways: 2}
	if err := d.Use(Plan{Set: set, MaxKeys: 1000}, redis, time.Now()); err != nil {
		t.Fatal(err)
	}
	allowed := func(inDoubt bool) bool {
		e := d.begin(&rule.Request{Path: "/"})
		defer func() { h := e.Handle(); h.Done() }()
		if inDoubt {
			e.down = 1 << e.limits.redis
		}
		if err := e.find(); err != nil {
			t.Fatal(err)
		}
		if err := e.decide(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		return e.Allowed
	}
	for i := range 3 {
		if !allowed(true) {
			t.Fatal(i)
		}
	}
	redis.BackAt, redis.Returns = local.Now(), 1
	if err := d.UseRedis(redis, time.Now()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range 10 {
		if allowed(false) {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d are allowed after 3 in doubt, want 2: the share is 5", n)
	}
}
