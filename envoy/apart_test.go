// SPDX-License-Identifier: MIT

package envoy

import (
	"slices"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// No time passes in these limits that a test could notice: one per second never allows, and the other has room for all.
const secondly = `
domain: shop
descriptors:
- {key: never, rate_limit: {unit: second, requests_per_unit: 0}}
- {key: often, rate_limit: {unit: second, requests_per_unit: 1000000}}
- {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: debit, rate_limit: {unit: year, requests_per_unit: 1, debit: true}}
`

// redisConfig returns the settings of a server.
func redisConfig(t *testing.T, s *redistest.Server) *config.Redis {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte("redis: {url: \""+s.URL()+"\", timeout: 10s}\nlimits: []"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Redis
}

// Limits per second in another Redis decide together with all others: one that refuses charges no other, or all.
func TestPerSecond(t *testing.T) {
	t.Parallel()
	for _, charge := range []bool{false, true} {
		all, seconds := redistest.Start(t), redistest.Start(t)
		settings := &config.Config{Redis: redisConfig(t, all)}
		settings = settings.Filled(config.DefaultVocabulary())
		s := open(t, secondly, func(o *RateLimitOptions) {
			o.Settings = func() *config.Config { return settings }
			o.ChargeAll, o.PerSecond, o.Original = charge, redisConfig(t, seconds), &Original{}
		})
		own := request("user=ann", "user=override")
		own.Descriptors[1].Limit = &common.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit_SECOND}
		look := request("user=ann")
		look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
		many := request("often=a", "user=ann")
		many.Descriptors[0].HitsAddend = wrapperspb.UInt64(900_000)
		left := func(n string) string { return "ok | ok " + n + " of 2/year" }
		for i, step := range []struct {
			ask       *rls.RateLimitRequest
			none, all string // the answers in both modes; empty: the overall code alone counts
		}{
			{request("often=a", "user=ann"), "", ""},
			{look, left("1"), left("1")},
			{request("user=ann", "never=x"), "over | ok 0 of 2/year | over 0 of 0/second", "over | ok 0 of 2/year | over 0 of 0/second"},
			{look, left("1"), left("0")},
			{own, "over | ok 0 of 2/year | over 0 of 0/second", "over | over 0 of 2/year | over 0 of 0/second"},
			{look, left("1"), "over | over 0 of 2/year"},
			{request("user=ann"), left("0"), "over | over 0 of 2/year"},
		} {
			got, want := ask(t, s, step.ask), step.none
			if charge {
				want = step.all
			}
			if want != "" && got != want {
				t.Errorf("all=%t, step %d: %s, want %s", charge, i, got, want)
			}
		}
		for range 2 { // the second one would find no room if the first had stayed charged
			r, err := s.ShouldRateLimit(t.Context(), many)
			if err != nil {
				t.Fatal(err)
			}
			if over := r.GetStatuses()[0].GetCode() == rls.RateLimitResponse_OVER_LIMIT; over && !charge || r.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
				t.Errorf("all=%t: %v", charge, r)
			}
		}
		seconds.Kill()
		testproc.Eventually(t, func() bool { return s.Limiters()[1].Status().Degraded })
		if s.Limiters()[0].Status().Degraded {
			t.Error("the other limits are counted without Redis")
		}
		rules := func(i int) (names []string) {
			for _, r := range s.Limiters()[i].Status().Rules {
				names = append(names, r.Name)
			}
			return names
		}
		if got := rules(0); !slices.Equal(got, []string{"shop.user", "shop.debit"}) {
			t.Errorf("limits %q", got)
		}
		if got := rules(1); !slices.Equal(got, []string{"shop.never", "shop.often", "override 0/second"}) {
			t.Errorf("limits per second %q", got)
		}
		seconds.Restart() // else the end waits for it
	}
}

// A limit with debit that refuses is charged, and no limit per second of the request.
func TestPerSecondDebit(t *testing.T) {
	t.Parallel()
	all, seconds := redistest.Start(t), redistest.Start(t)
	settings := (&config.Config{Redis: redisConfig(t, all)}).Filled(config.DefaultVocabulary())
	s := open(t, secondly, func(o *RateLimitOptions) {
		o.Settings, o.PerSecond, o.Original = func() *config.Config { return settings }, redisConfig(t, seconds), &Original{}
	})
	for range 3 { // the third one would find no room
		q := request("often=a", "debit=x")
		q.Descriptors[0].HitsAddend = wrapperspb.UInt64(400_000)
		r, err := s.ShouldRateLimit(t.Context(), q)
		if err != nil || r.GetStatuses()[0].GetCode() != rls.RateLimitResponse_OK {
			t.Errorf("%v, %v", r, err)
		}
	}
}
