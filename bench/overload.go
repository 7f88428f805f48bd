// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
)

// The group overload measures what clients get from an upstream that they ask for too much. The upstream is a
// model: 16 servers behind one queue, with random service times. The limiters are real, at the simulated time of
// testing/synctest, so the figures say nothing of this machine.
//
// Requests arrive at random, and wait for no other. There are three priorities, of which the highest offers at
// most half of the capacity. Six of a thousand clients send half of the requests. Goodput is the part of the capacity
// that is answered within three times the p99 of the unloaded upstream. A figure is what nine of ten seeds reach. The
// first third of a run is not counted.

const (
	upstreamServers = 16
	serviceTime     = 20 * time.Millisecond   // the mean of an exponential distribution
	unloadedP99     = 92 * time.Millisecond   // ln 100 times the mean
	capacity        = upstreamServers / 0.020 // requests a second
	overloadSpan    = 12 * time.Second        // of a run
	countedFrom     = overloadSpan / 3
	halfLoad        = "half of the capacity"

	adaptiveDiana = "Diana, algo: AC"
	adaptiveRules = "limits: [{url: /, rules: [{algo: AC, rpu: 200, priority: 'header:X-Priority', priorities: ['0', '1', '2']}]}]\n"
)

var (
	goodput   = measure.Figure{Name: "goodput", Format: measure.PercentText, Better: measure.More}
	firstP99  = measure.Figure{Name: "p99 of the highest priority", Format: measure.PlainText}
	turnedOff = measure.Figure{Name: "refused", Format: measure.PercentText, Better: measure.Neither}

	overloadFigures = []measure.Figure{goodput, firstP99, turnedOff}
)

// overload is a workload of the group.
type overload struct {
	name string
	load float64 // of the capacity

	slower  float64 // from the middle of the run to three quarters, the upstream takes so many times as long; 0: it does not
	stalled bool    // from the middle of the run, nothing ends for two seconds
}

// request returns the priority and the client of a request.
func (w *overload) request(random *rand.Rand) (priority, client int) {
	client = random.IntN(1000)
	if highest := min(1./3, 0.5/w.load); random.Float64() > highest {
		priority = 1 + random.IntN(2)
	}
	if random.IntN(2) == 0 {
		client %= 6
	}
	return priority, client
}

func overloads() []overload {
	return []overload{
		{name: halfLoad, load: 0.5}, {name: "the capacity", load: 1}, {name: "2 x", load: 2},
		{name: "5 x", load: 5}, {name: "10 x", load: 10},
		{name: "2 x, four times slower for a while", load: 2, slower: 4},
		{name: "2 x, a stall of 2 s", load: 2, stalled: true},
	}
}

func overloadGroup() group {
	var lines []page.Line
	for _, w := range overloads() {
		beside := page.Compare(w.name+": goodput", w.name, goodput, adaptiveDiana, page.BestRival)
		switch {
		case w.load < 1:
			lines = append(lines, page.Compare(w.name+": refused", w.name, turnedOff, adaptiveDiana).Must("O2", page.AtMost(turnedOff, 0)))
		case w.slower > 0 || w.stalled:
			lines = append(lines, beside)
		case w.load > 1:
			ahead := page.RatioAtLeast(1)
			lines = append(lines, beside.Must("O2", page.Bound{Text: "≥ 90 %, ≥ 1 x", Met: func(m page.Measured) bool { return m.Value >= 90 && ahead.Met(m) }}))
			if w.load == 10 {
				lines = append(lines, page.Compare(w.name+": p99 of the highest priority", w.name, firstP99, adaptiveDiana).Must("O2", page.AtMost(firstP99, 2)))
			}
		}
	}
	for _, u := range liveUpstreams() {
		for _, load := range []float64{2, 5} {
			w := u.workload(load)
			lines = append(lines, page.Compare(w+": goodput", w, goodput, adaptiveDiana).Must("O2", page.Bound{Text: "≥ 90 %", Met: func(m page.Measured) bool { return m.Value >= 90 }}))
		}
	}
	return group{measure: measureOverload, Chapter: page.Chapter{
		Name: "overload", Title: "Overload of a simulated upstream, in its capacity",
		Figures: overloadFigures,
		Lines:   lines,
	}}
}

// arrive calls do for each of the requests that arrive at random at a rate, until the end of a span.
func (w *overload) arrive(random *rand.Rand, rate float64, span time.Duration, do func(at time.Duration, priority, client int)) {
	began := time.Now()
	for at := time.Duration(0); at < span; {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		time.Sleep(time.Until(began.Add(at)))
		priority, client := w.request(random)
		do(at, priority, client)
	}
}

// tally counts the requests that count.
type tally struct {
	sync.Mutex            // guards the rest
	came, refused, inTime float64
	first                 []time.Duration // latencies of the highest priority
}

// outcome returns what the tally shows. enough is how many requests the upstream could have answered in time.
func (y *tally) outcome(enough float64, unloaded time.Duration) outcome {
	o := outcome{Goodput: 100 * y.inTime / enough, Refused: 100 * y.refused / max(y.came, 1)}
	if slices.Sort(y.first); len(y.first) > 0 {
		o.First = y.first[len(y.first)*99/100].Seconds() / unloaded.Seconds()
	}
	return o
}

// measureOverload runs TestOverload, because synctest is for tests.
func measureOverload(ctx context.Context, r *measure.Run) error {
	file, err := os.CreateTemp("", "overload")
	if err != nil {
		return err
	}
	_ = file.Close()                              // it is empty
	defer func() { _ = os.Remove(file.Name()) }() // it is temporary
	r.Note("  %d seeds of each", r.Count(100))
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=0", "-run=^TestOverload$", ".")
	test.Env = append(os.Environ(), fmt.Sprintf("%s=%d", overloadSeeds, r.Count(100)), overloadFile+"="+file.Name())
	if out, err := test.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		return err
	}
	var results []simulated
	if err := json.Unmarshal(text, &results); err != nil {
		return err
	}
	for _, s := range results {
		var goodputs, firsts, refusals []float64
		for _, o := range s.Outcomes {
			goodputs, firsts, refusals = append(goodputs, o.Goodput), append(firsts, o.First), append(refusals, o.Refused)
		}
		addOutcome(r.Row(s.Workload, s.System, s.Kind), outcome{
			measure.Quantile(goodputs, 0.1), measure.Quantile(firsts, 0.9), measure.Quantile(refusals, 0.9),
		})
	}
	return nil
}

func addOutcome(m *measure.Row, o outcome) {
	m.Add(goodput, o.Goodput)
	m.Add(firstP99, o.First)
	m.Add(turnedOff, o.Refused)
}

// The variables of TestOverload: how many seeds, and the file for the results.
const (
	overloadSeeds = "OVERLOAD_SEEDS"
	overloadFile  = "OVERLOAD_FILE"
)

// simulated is what all seeds of a workload show of a system.
type simulated struct {
	Workload, System string
	Kind             measure.Kind
	Outcomes         []outcome
}

// outcome is what a run shows, the parts in per cent.
type outcome struct{ Goodput, First, Refused float64 }
