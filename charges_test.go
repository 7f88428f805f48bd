// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/rule"
)

const chargedRules = `
max_keys: 1000
%s
limits:
- {url: /, rules: [{name: small, actor: account, unit: day, algo: W, rpu: 5%[2]s}]}
- {url: /large, rules: [{name: large, actor: account, unit: day, algo: W, rpu: 100%[2]s}]}
- {url: /shadow, rules: [{name: shadow, mode: shadow, actor: account, unit: day, algo: W, rpu: 1%[2]s}]}
`

// charging takes one request with charges, and returns whether it is allowed and what is left.
func charging(t *testing.T, l *diana.Limiter, charges ...rule.Charge) (bool, []int64) {
	t.Helper()
	d, err := l.Take(context.Background(), diana.Request{Charges: charges})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done()
	var left []int64
	for _, v := range d.Verdicts {
		left = append(left, v.Remaining)
	}
	return d.Allowed, left
}

// onBothStores calls a test with a Limiter that counts in this process, and with one that counts in
// Redis.
func onBothStores(t *testing.T, f func(t *testing.T, l *diana.Limiter)) {
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		f(t, limiter(t, fmt.Sprintf(chargedRules, "", "")))
	})
	t.Run("global", func(t *testing.T) {
		t.Parallel()
		l := limiter(t, fmt.Sprintf(chargedRules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
		testproc.Eventually(t, connected(l))
		f(t, l)
	})
}

// A request that names its rules is charged to all of them, or to none.
func TestCharges(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		small := func(cost int64) rule.Charge { return rule.Charge{Rule: "small", Key: "ann", Cost: cost} }
		large := func(cost int64) rule.Charge { return rule.Charge{Rule: "large", Key: "ann", Cost: cost} }
		for i, row := range []struct {
			charges []rule.Charge
			allowed bool
			left    string
		}{
			{[]rule.Charge{small(2), large(10)}, true, "[3 90]"},
			{[]rule.Charge{{Rule: "small", Key: "joe", Cost: 1}, {Rule: "small", Key: "a:b", Cost: 1}}, true, "[4 4]"},
			{[]rule.Charge{small(4), large(10)}, false, ""},
			{[]rule.Charge{small(0), large(0)}, true, "[3 90]"},
			{[]rule.Charge{small(3), large(1)}, true, "[0 89]"},
			{[]rule.Charge{small(0)}, true, "[0]"},
			{[]rule.Charge{small(-1), large(1)}, true, ""},
			{[]rule.Charge{small(0), large(0)}, true, "[1 88]"},
			{[]rule.Charge{small(2), large(-80)}, false, ""}, // refunds nothing
			{[]rule.Charge{small(0), large(0)}, true, "[1 88]"},
			{[]rule.Charge{small(-80)}, true, ""}, // not more than the limit
			{[]rule.Charge{small(0)}, true, "[5]"},
			{[]rule.Charge{{Rule: "shadow", Key: "x", Cost: 2}, small(1)}, true, "[1 4]"},
		} {
			allowed, left := charging(t, l, row.charges...)
			if got := strings.ReplaceAll(fmt.Sprint(left), "-1", "0"); allowed != row.allowed || row.left != "" && got != row.left {
				t.Errorf("%d: %+v is allowed %v with %v left, want %v and %s", i, row.charges, allowed, left, row.allowed, row.left)
			}
		}
		if _, err := l.Take(t.Context(), diana.Request{Charges: []rule.Charge{{Rule: "none"}}}); err == nil || !strings.Contains(err.Error(), `no rule has the name "none"`) {
			t.Errorf("an unknown rule: %v", err)
		}
	})
}

// A debit is made although the limit is used up, unless another rule refuses the request.
func TestDebits(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		debit := func(cost int64) rule.Charge { return rule.Charge{Rule: "small", Key: "ann", Cost: cost, Debit: true} }
		take := func(want bool, charges ...rule.Charge) {
			t.Helper()
			if allowed, left := charging(t, l, charges...); allowed != want {
				t.Errorf("%+v is allowed %v with %v left", charges, allowed, left)
			}
		}
		take(true, debit(4))
		take(true, debit(4)) // 8 of 5
		take(false, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: -4})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: 1}) // 5 of 5
		take(false, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
		take(false, debit(4), rule.Charge{Rule: "large", Key: "ann", Cost: 101})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: -1})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
	})
}

// Many requests at once with charges to two rules are counted exactly.
func TestChargesAtOnce(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		var wg sync.WaitGroup
		var allowed atomic.Int64
		for i := range 64 {
			wg.Go(func() {
				for range 10 {
					if ok, _ := charging(t, l, rule.Charge{Rule: "large", Key: "all", Cost: 2}, rule.Charge{Rule: "large", Key: fmt.Sprint(i), Cost: 1}); ok {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := allowed.Load(); n != 50 {
			t.Errorf("%d requests of cost 2 are allowed, want 50 of a limit of 100", n)
		}
	})
}

// A refused charge with Debit is made in the call that has refused it. In a second call it could count in
// the next window.
func TestDebitIsOneCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	l := limiterOf(t, diana.Options{RedisObserved: func(time.Duration) { calls.Add(1) }},
		fmt.Sprintf(chargedRules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
	testproc.Eventually(t, connected(l))
	debit := []rule.Charge{{Rule: "small", Key: "ann", Cost: 4, Debit: true}, {Rule: "large", Key: "ann", Cost: 1, Debit: true}}
	charging(t, l, debit...)
	before := calls.Load()
	for range 10 {
		charging(t, l, debit...)
	}
	if n := calls.Load() - before; n != 10 {
		t.Errorf("10 requests over a limit took %d calls, want 10", n)
	}
	if _, left := charging(t, l, rule.Charge{Rule: "large", Key: "ann"}); left[0] != 89 {
		t.Errorf("%d of 100 are left, want 89", left[0])
	}
}

// A debit of the local store is undone if Redis refuses the request, and made once if Redis fails.
func TestDebitBesideRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := limiter(t, fmt.Sprintf(`
redis: {url: %q, timeout: 3s}
limits:
- {url: /, rules: [{name: near, actor: account, unit: day, algo: W, rpu: 5, scope: local}]}
- {url: /far, rules: [{name: far, actor: account, unit: day, algo: W, rpu: 2, scope: global, on_error: open}]}
`, r.URL()))
	testproc.Eventually(t, connected(l))
	near := func(cost int64) rule.Charge { return rule.Charge{Rule: "near", Key: "ann", Cost: cost, Debit: true} }
	far := rule.Charge{Rule: "far", Key: "ann", Cost: 2}
	other := rule.Charge{Rule: "far", Key: "joe", Cost: 2} // no refusal of it is remembered
	step := func(want bool, charges ...rule.Charge) {
		t.Helper()
		if allowed, left := charging(t, l, charges...); allowed != want {
			t.Errorf("%+v is allowed %v with %v left, want %v", charges, allowed, left, want)
		}
	}
	step(true, near(4), far)  // 4 of 5
	step(false, near(4), far) // Redis refuses
	step(true, near(3))       // 7 of 5
	step(false, near(3), far)
	r.Freeze()
	step(true, near(2), other) // 9 of 5, after the local store was asked twice
	one := rule.Charge{Rule: "near", Key: "ann", Cost: 1}
	step(false, one)
	step(true, near(-4))
	step(false, one)
	step(true, near(-1))
	step(true, one)
	step(false, one)
}

// A debited charge is refunded for a status that does not count, and a debited slot is released.
func TestDebitsEnd(t *testing.T) {
	t.Parallel()
	const rules = `
%s
limits:
- {url: /, rules: [{name: counted, actor: account, unit: day, algo: W, rpu: 5, charge: [200]%[2]s}]}
- {url: /slots, rules: [{name: slots, actor: account, algo: C, rpu: 1%[2]s}]}
`
	test := func(t *testing.T, l *diana.Limiter) {
		for _, name := range []string{"counted", "slots"} {
			one := rule.Charge{Rule: name, Key: "ann", Cost: 1}
			debit := rule.Charge{Rule: name, Key: "ann", Cost: 5, Debit: true}
			var all []diana.Decision
			for range 2 { // 10 of 5, and 10 slots of 1
				d, err := l.Take(t.Context(), diana.Request{Charges: []rule.Charge{debit}})
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				all = append(all, d)
			}
			if ok, _ := charging(t, l, one); ok {
				t.Errorf("%s: a request is allowed beside two debits", name)
			}
			for _, d := range all {
				d.SetStatus(503)
				d.Done()
			}
			if ok, left := charging(t, l, one); !ok {
				t.Errorf("%s: a request is refused after two debits have ended, with %v left", name, left)
			}
		}
	}
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, limiter(t, fmt.Sprintf(rules, "", "")))
	})
	t.Run("global", func(t *testing.T) {
		t.Parallel()
		l := limiter(t, fmt.Sprintf(rules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
		testproc.Eventually(t, connected(l))
		test(t, l)
	})
}
