// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// A rule decides and counts the same alone as beside a rule that allows everything.
func TestOneRuleAsBesideAnother(t *testing.T) {
	t.Parallel()
	const some = "{name: other, rpu: 1000000000}"
	const many = "{rpu: 900000000}, {rpu: 900000001}, {rpu: 900000002}, {rpu: 900000003}" // too many for the short way
	for _, rule := range []string{
		"actor: account, rpu: 5",
		"actor: account, rpu: 5}, {name: two, rpu: 7, unit: minute",
		"actor: account, rpu: 3, mode: shadow}, {name: two, rpu: 0, mode: shadow}, {name: three, actor: account, rpu: 0, overrides: {ann: {rpu: 4}}",
		"actor: account, rpu: 4, except: [eve]}, {name: two, actor: account, rpu: 5, algo: W, except: [eve, joe]}, {name: three, actor: account, rpu: 6, algo: SL",
		"rpu: 7, unit: minute",
		"actor: account, rpu: 0",
		"actor: account, rpu: 3, mode: shadow",
		"actor: account, rpu: 5, cost: 2",
		"actor: account, rpu: 5, cost: 3, overrides: {bob: {rpu: 0}}",
		"actor: account, rpu: 5, except: [eve], overrides: {ann: {rpu: 2}, bob: {rpu: 0}}",
		"actor: [account, ip], rpu: 4, algo: W",
		"actor: account, rpu: 4, algo: SL",
		"actor: account, rpu: 4, algo: SW",
		"actor: account, rpu: 4, algo: C",
		"actor: account, rpu: 4, algo: LB, mode: shadow",
	} {
		for _, others := range []string{some, many} {
			asBeside(t, rule, others)
		}
	}
}

// asBeside checks that a request is decided in the same way under rules alone and beside others.
func asBeside(t *testing.T, rule, others string) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	o := diana.Options{Now: func() time.Time { return now }}
	alone := limiterOf(t, o, fmt.Sprintf("max_keys: 100\nlimits: [{url: /, rules: [{name: one, %s}]}]", rule))
	beside := limiterOf(t, o, fmt.Sprintf("max_keys: 100\nlimits: [{url: /, rules: [{name: one, %s}, %s]}]", rule, others))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
		r := account([]string{"ann", "bob", "eve", "joe", fmt.Sprint(i)}[random.IntN(5)])
		got, want := decided(t, alone, r), decided(t, beside, r)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: request %d of %v: %+v alone, %+v beside another rule", rule, i, r.Actors, got, want)
		}
	}
	for i, got := range alone.Status().Rules {
		want := beside.Status().Rules[i]
		if got.Allowed != want.Allowed || got.Refused != want.Refused || got.ShadowRefused != want.ShadowRefused || got.Overflow != want.Overflow {
			t.Errorf("%s: %+v alone, %+v beside another rule", rule, got, want)
		}
	}
}

// decided returns what a Decision says of the rules "one", "two" and "three".
func decided(t *testing.T, l *diana.Limiter, r diana.Request) (says []any) {
	t.Helper()
	d, err := l.Take(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done()
	says = append(says, d.Allowed, d.RetryAfter, d.Delayed, d.Degraded)
	for _, v := range d.Verdicts {
		if slices.Contains([]string{"one", "two", "three"}, v.Rule.Name) {
			says = append(says, v.Rule.Name, v.Outcome, v.Rule.Limit)
		}
	}
	return says
}

// Requests under one rule and under three use the same memory in turn, and allocate nothing.
func TestOneRuleAndThreeAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := limiter(t, `
- {url: /one, rules: [{actor: account, rpu: 1000}]}
- {url: /three, rules: [{rpu: 1000}, {actor: ip, rpu: 1000}, {actor: account, rpu: 1000}]}
`)
	one, three := account("ann"), account("ann")
	one.Path, three.Path = "/one", "/three"
	inTurn := func() {
		for _, r := range [...]diana.Request{one, three} {
			d, err := l.Take(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done()
		}
	}
	if n := testing.AllocsPerRun(200, inTurn); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
