// SPDX-License-Identifier: MIT

package main

import (
	_ "embed" // the Lua source
	"fmt"

	"github.com/diana-limiter/diana/limit"
)

// coolDown allows N requests, and then nothing until none has passed for a whole Unit.
//
// Whoever pauses for a Unit has all N again, at any time. Whoever does not has N, however
// they are spread, and then the pause is made for them:
//
//	N = 3     o     o    o x x    x      o   o                  o  o  o x
//	          |----------|---------------|   |------------------|
//	              run       one Unit              one Unit
//
// It is for what a person does a few times in a row and a script forever: to ask for
// confirmation codes, to try passwords. A fixed window gives such a script N more as
// soon as the window ends.
//
// In no span shorter than a Unit more than N pass: of N + 1 that pass one after another,
// two neighbours are a Unit apart, or the last would have been refused. The price is that
// who asks steadily has to pause as well, also if that would never be more than N in a Unit.
// Requests that are refused do not make the pause longer.
//
// State: one word. 52 bits are the moment of the last request, in microseconds since
// 1970, which is enough until 2112, and 11 bits how many have passed since the last
// pause; so N is at most 2,047. Expiry: when the pause is over.
//
// Refund takes from the count, if the request was made within the Unit before the last one.
// Of an earlier one it is not known whether there was a pause between, so it is not given
// back. The moment stays, as the one before is not known; but when nothing is left of the
// count there is nothing to pause from. Cost: one comparison.
func coolDown() limit.Algorithm {
	return limit.Algorithm{
		Names: []string{"CD", "cool-down"},
		Keys:  []string{"unit"},
		New:   newPauses,
	}
}

const (
	countBits = 11
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

func (p *pauses) StateVersion() string         { return "1" }
func (p *pauses) Cells(limit.State, int64) int { return 0 }

// load returns the moment of the last request and how many there are since the last pause.
func load(s limit.State) (last, count int64) {
	return int64(s.Head >> countBits), int64(s.Head & most)
}

// at returns the same at the moment now. After a pause there is nothing to remember. A clock
// that went back does not go behind the last request, even if all has been given back.
func (p *pauses) at(s limit.State, now int64) (last, count int64) {
	last, count = load(s)
	if count == 0 || now >= last+p.unit {
		return max(last, now), 0
	}
	return last, count
}

// Peek says of every request how long the pause would be that begins with the last one: it
// is the time after which all N are there again, and until then no more than remain.
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
