// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
)

// TestOverload simulates all workloads of the group overload, and writes the outcomes to the file that the group asks
// for. TestGroups measures the group.
func TestOverload(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv(overloadSeeds))
	if err != nil {
		t.Skip("it runs for the group overload")
	}
	var results []simulated
	t.Run("all", func(t *testing.T) {
		for _, w := range overloads() {
			for i, g := range guards(t) {
				outcomes := make([]outcome, seeds)
				results = append(results, simulated{w.name, g.Name, g.Kind, outcomes})
				for seed := range seeds {
					t.Run("", func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							outcomes[seed] = newUpstream(&w, guards(t)[i], uint64(seed)).run()
						})
					})
				}
			}
		}
	})
	for _, s := range results {
		if w, o := s.Workload, s.Outcomes[0]; s.System == adaptiveDiana && (o.Goodput < 30 || w == halfLoad && o.Refused > 1) {
			t.Errorf("%s: %+v", w, o)
		}
	}
	text, err := json.Marshal(results)
	if err == nil {
		err = os.WriteFile(os.Getenv(overloadFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guards returns what protects an upstream.
func guards(t *testing.T) []rivals.Guard {
	t.Helper()
	l, err := openLimiter(context.Background(), adaptiveRules)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLimiter(l) })
	others, err := rivals.Guards()
	if err != nil {
		t.Fatal(err)
	}
	return append([]rivals.Guard{
		{Name: adaptiveDiana, Kind: measure.Diana, Enter: func(priority, client int) (func(), bool) {
			d, err := l.Take(context.Background(), dianalib.Request{Path: "/", Actors: map[string]string{
				"priority": strconv.Itoa(priority), "account": strconv.Itoa(client),
			}})
			if err != nil || !d.Allowed {
				d.Done()
				return nil, false
			}
			return d.Done, true
		}},
		{Name: "nothing", Kind: measure.Floor, Enter: func(int, int) (func(), bool) { return func() {}, true }},
	}, others...)
}

// upstream is the model of a server. Its queue is in the order of arrival, so a request gets the server that is free
// first.
type upstream struct {
	*overload
	guard rivals.Guard
	rand  *rand.Rand
	began time.Time
	free  [upstreamServers]time.Time // when each server is free
	tally tally
}

func newUpstream(w *overload, g rivals.Guard, seed uint64) *upstream {
	return &upstream{overload: w, guard: g, rand: rand.New(rand.NewPCG(seed, 1)), began: time.Now()}
}

// run lets requests arrive until the end.
func (u *upstream) run() outcome {
	u.arrive(u.rand, u.load*capacity, overloadSpan, func(_ time.Duration, priority, client int) { u.enter(priority, client) })
	time.Sleep(time.Hour) // all that has entered ends
	u.tally.Lock()
	defer u.tally.Unlock()
	counted := (overloadSpan - countedFrom).Seconds()
	if u.slower > 0 { // the capacity of a quarter of the run is smaller
		counted -= overloadSpan.Seconds() / 4 * (1 - 1/u.slower)
	}
	if u.stalled {
		counted -= 2
	}
	return u.tally.outcome(capacity*counted, unloadedP99)
}

// enter lets a request arrive now.
func (u *upstream) enter(priority, client int) {
	now := time.Now()
	at, slow := now.Sub(u.began), 1.0
	if u.slower > 0 && at > overloadSpan/2 && at < overloadSpan*3/4 {
		slow = u.slower
	}
	service := time.Duration(u.rand.ExpFloat64() * slow * float64(serviceTime))
	counted := at >= countedFrom
	end, ok := u.guard.Enter(priority, client)
	u.tally.Lock()
	defer u.tally.Unlock()
	if counted {
		u.tally.came++
	}
	if !ok {
		if counted {
			u.tally.refused++
		}
		return
	}
	first := &u.free[0]
	for i := range u.free {
		if u.free[i].Before(*first) {
			first = &u.free[i]
		}
	}
	done := *first
	if done.Before(now) {
		done = now
	}
	done = done.Add(service)
	if stall := u.began.Add(overloadSpan / 2); u.stalled && done.After(stall) && now.Before(stall.Add(2*time.Second)) && done.Before(stall.Add(2*time.Second)) {
		done = stall.Add(2 * time.Second)
	}
	*first = done
	latency := done.Sub(now)
	time.AfterFunc(latency, func() {
		end()
		u.tally.Lock()
		defer u.tally.Unlock()
		if !counted {
			return
		}
		if latency <= time.Duration(3*slow*float64(unloadedP99)) && done.Sub(u.began) <= overloadSpan {
			u.tally.inTime++
		}
		if priority == 0 {
			u.tally.first = append(u.tally.first, latency)
		}
	})
}
