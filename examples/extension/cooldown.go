// SPDX-License-Identifier: MIT

package main

import (
	_ "embed" // the Lua source
	"fmt"

	"github.com/diana-limiter/diana/limit"
)

// coolDown allows N requests, and then none until a whole Unit has passed without a request.
//
// An actor that pauses for a Unit has all N requests again, at any time. An actor that does not pause
// has N requests, at whatever times, and then must pause:
//
//	N = 3     o     o    o x x    x      o   o                  o  o  o x
//	          |----------|---------------|   |------------------|
//	              run       one Unit              one Unit
//
// It is for an action that a person does a few times in a row and a script does forever, such as
// requesting confirmation codes or trying passwords. A fixed window allows such a script N more
// requests as soon as the window ends.
//
// A span shorter than a Unit never has more than N allowed requests: among N + 1 consecutive ones,
// two neighbours are at least a Unit apart. The price is that an actor with a steady rate must pause
// too, even if it never makes more than N requests in a Unit. Refused requests do not make the pause
// longer.
//
// State: one word, of whose 64 bits the store keeps one. 53 bits are the moment of the last request, in
// microseconds since 1970. They last until 2255. 10 bits are the number of requests since the last
// pause, so N is at most 1,023. The state expires when the pause is over.
//
// Refund reduces the count if the request was made within the Unit before the last request. The state
// does not say whether an actor paused after an earlier request, so Refund ignores that one. The
// moment does not change, because the moment before it is unknown. If the count is 0, the actor need
// not pause. Cost: one comparison.
func coolDown() limit.Algorithm {
	return limit.Algorithm{
		Names: []string{"CD", "cool-down"},
		Keys:  []string{"unit"},
		New:   newPauses,
	}
}

const (
	countBits = 10
	most      = 1<<countBits - 1
)

// pauses is the limit.Meter of a cool-down.
type pauses struct{ n, unit int64 }

func newPauses(l limit.Limit) (limit.Meter, error) {
	if l.N < 0 || l.N > most {
		return nil, fmt.Errorf("rpu is %d, expected 0 to %d", l.N, most)
	}
	if err := l.Check(); err != nil {
		return nil, err
	}
	return &pauses{n: l.N, unit: l.Unit.Microseconds()}, nil
}

func (p *pauses) StateVersion() string         { return "2" }
func (p *pauses) Cells(limit.State, int64) int { return 0 }

// load returns the moment of the last request and how many there are since the last pause.
func load(s limit.State) (last, count int64) {
	return int64(s.Head >> countBits), int64(s.Head & most)
}

// at returns the same at the moment now. After a pause the count is 0. If the clock goes back, the
// moment of the last request counts, even if all requests were refunded.
func (p *pauses) at(s limit.State, now int64) (last, count int64) {
	last, count = load(s)
	if count == 0 || now >= last+p.unit {
		return max(last, now), 0
	}
	return last, count
}

// Peek computes the pause from the last request. When the pause is over, all N requests are
// available. Until then no more than Remaining are available.
func (p *pauses) Peek(s limit.State, now, n int64) limit.Outcome {
	last, count := p.at(s, now)
	pause := last + p.unit - now
	out := limit.Outcome{Remaining: max(p.n-count, 0), Reset: pause}
	if count+n > p.n {
		out.Wait = pause
		return out
	}
	out.Allowed = true
	return out
}

func (p *pauses) Take(s limit.State, now, n int64) uint64 {
	last, count := p.at(s, now)
	return uint64(max(last, now))<<countBits | uint64(count+n)
}

func (p *pauses) Refund(s limit.State, at, n int64) uint64 {
	last, count := load(s)
	if at <= last-p.unit {
		return s.Head
	}
	return uint64(last)<<countBits | uint64(max(count-n, 0))
}

func (p *pauses) Expiry(s limit.State) int64 {
	last, count := load(s)
	if count == 0 {
		return last
	}
	return last + p.unit
}

// Moment implements limit.Clamped: a request that comes with an earlier moment than the
// last one is counted at the last one's.
func (p *pauses) Moment(s limit.State, now int64) int64 {
	last, _ := load(s)
	return max(now, last)
}

//go:embed cooldown.lua
var coolDownLua string

// Script implements limit.Scripted, so that the algorithm can have scope: global.
func (p *pauses) Script() limit.Script {
	return limit.Script{Source: coolDownLua, Args: []int64{p.n, p.unit}}
}
