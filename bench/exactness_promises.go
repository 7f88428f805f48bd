// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"slices"
	"time"

	"github.com/diana-limiter/diana/bench/rivals"
)

// The driver compares a system with its own promise, and counts only what is certain. The driver knows
// when it sent a request and when it had the answer. The system decided at some moment between these two.
// So an excess is certain only if all its requests were sent and answered within an interval. A refusal is
// needless only if even the requests that may have been decided before it leave something of the limit.
//
// The driver and all systems run on one machine, so their clocks of the day are one clock. The driver
// reads that clock once in each phase and measures by the monotonic clock from there.

// promise says how many requests a system may allow.
type promise struct {
	text string // in words

	// most returns the most requests of a quota between two moments.
	most func(h *history, q rivals.Quota, from, to time.Duration) float64

	// missing returns how many more requests than h has were due when a request was refused.
	missing func(h *history, q rivals.Quota, refused answer) float64
}

// clockGrain is the coarsest unit in which a system reads its clock. A system may place a request that much too
// early or too late. So each promise is read in its favour, with longer intervals for most and shorter ones for
// missing.
const clockGrain = time.Millisecond

// bucketPromise is that of a token bucket and of GCRA: the capacity at once, and then the rate.
var bucketPromise = promise{
	text: "n at once, and n more evenly in each unit",
	most: func(_ *history, q rivals.Quota, from, to time.Duration) float64 { return supply(q, to-from+clockGrain) },
	missing: func(h *history, q rivals.Quota, refused answer) float64 {
		// The bucket was full at the first request, and never again, because the clients ask without pause. So
		// it has received its supply since then. A refusal means that it holds less than 1. Both moments are
		// read in grains.
		return supply(q, refused.sent-h.answers[0].received-2*clockGrain) - 1 - h.possible(0, refused.received)
	},
}

// supply is what a bucket that was full has given or still has after a while.
func supply(q rivals.Quota, d time.Duration) float64 {
	return float64(q.N) * (1 + float64(d)/float64(q.Per))
}

// clockWindowPromise is that of windows that begin at multiples of the unit.
var clockWindowPromise = promise{
	text: "n in each window of the clock",
	most: func(h *history, q rivals.Quota, from, to time.Duration) float64 {
		return float64(q.N * (1 + h.window(q, to+clockGrain) - h.window(q, from-clockGrain)))
	},
	missing: func(h *history, q rivals.Quota, refused answer) float64 {
		begin, known := h.refusing(q, refused)
		if !known {
			return 0
		}
		return float64(q.N) - h.possible(begin-clockGrain, refused.received)
	},
}

// firstWindowPromise is that of windows that begin with the first request after the window before. The driver does
// not know when a window began: between the sending and the answer of some request. So a moment has two numbers of
// windows. The latest is that of windows which follow each other at once from the first sending. The earliest is the
// number of windows that have certainly ended, even if each began as late as possible.
var firstWindowPromise = promise{
	text: "n in each window, which a request begins",
	most: func(h *history, q rivals.Quota, from, to time.Duration) float64 {
		return float64(q.N * (1 + h.latest(q, to) - h.earliest(q, from)))
	},
	missing: func(h *history, q rivals.Quota, refused answer) float64 {
		w := h.earliest(q, refused.sent)
		if w != h.latest(q, refused.received) {
			return 0
		}
		return float64(q.N) - h.possible(h.answers[0].sent+time.Duration(w)*q.Per, refused.received)
	},
}

// logPromise is that of a sliding log: n in any interval as long as the unit.
var logPromise = promise{
	text: "n in any interval of a unit",
	most: func(_ *history, q rivals.Quota, from, to time.Duration) float64 {
		return float64(q.N) * (1 + math.Floor(float64(to-from+clockGrain)/float64(q.Per)))
	},
	missing: func(h *history, q rivals.Quota, refused answer) float64 {
		return float64(q.N) - h.possible(refused.sent-q.Per-clockGrain, refused.received)
	},
}

// history is what the driver knows about one key of a system.
type history struct {
	began   time.Time // of the phase
	answers []answer  // by the time of sending

	sent, received []time.Duration // of the allowed requests, each sorted
	begins         []time.Duration // see latestBegins
}

// answer is one request, in time since the phase began.
type answer struct {
	sent, received time.Duration
	kind           answerKind
}

type answerKind uint8

const (
	answerAllowed answerKind = iota
	answerRefused
	answerFailed // an error status, or a broken connection
	answerLate   // none within answerPatience
)

func newHistory(began time.Time, answers []answer) *history {
	h := &history{began: began, answers: answers}
	slices.SortFunc(h.answers, func(a, b answer) int { return int(a.sent - b.sent) })
	for _, a := range h.answers {
		if a.kind == answerAllowed {
			h.sent, h.received = append(h.sent, a.sent), append(h.received, a.received)
		}
	}
	slices.Sort(h.received)
	return h
}

// window returns the number of a window of the clock.
func (h *history) window(q rivals.Quota, d time.Duration) int64 {
	return (h.began.UnixNano() + int64(d)) / int64(q.Per)
}

// refusing returns when the window of the clock began that refused a request, if only one can have.
func (h *history) refusing(q rivals.Quota, refused answer) (begin time.Duration, known bool) {
	w := h.window(q, refused.sent-clockGrain)
	begin = time.Duration(w*int64(q.Per) - h.began.UnixNano())
	return begin, w == h.window(q, refused.received+clockGrain)
}

// possible returns how many requests may have been allowed between two moments. A request was certainly allowed
// before, if it was answered before the first moment, or after, if it was sent after the second.
func (h *history) possible(from, to time.Duration) float64 {
	before, _ := slices.BinarySearch(h.received, from)
	until, _ := slices.BinarySearch(h.sent, to+1)
	return float64(until - before)
}

// mostStarts bounds the intervals that beyond looks at, which are all pairs of a start and an end.
const mostStarts = 2000

// latestBegins returns the latest moments at which windows can have begun that requests begin. A request
// that was sent after the end of a window, and was decided, is in a later one.
func (h *history) latestBegins(q rivals.Quota) []time.Duration {
	if h.begins != nil {
		return h.begins
	}
	end := time.Duration(0) // of the window before
	for {
		first := time.Duration(math.MaxInt64)
		for _, a := range h.answers {
			if a.sent >= end && (a.kind == answerAllowed || a.kind == answerRefused) {
				first = min(first, a.received)
			}
		}
		if first == math.MaxInt64 {
			return h.begins
		}
		h.begins = append(h.begins, first)
		end = first + q.Per + clockGrain
	}
}

// latest and earliest return how many windows that requests begin have ended at a moment, see firstWindowPromise.
func (h *history) latest(q rivals.Quota, d time.Duration) int64 {
	return int64((d - h.answers[0].sent) / q.Per)
}

func (h *history) earliest(q rivals.Quota, d time.Duration) int64 {
	ended, _ := slices.BinarySearch(h.latestBegins(q), d-q.Per-clockGrain)
	return int64(ended)
}

// beyond returns how many requests the system has certainly allowed beyond its promise, in the worst
// interval. That one begins as some request is sent and ends as some request is answered. A shorter one would lose
// a request, and a longer one would only add to what is promised. For an interval that begins as byStart[i] is sent,
// received holds the answers to this request and to all later ones. So received[n] ends an interval with n+1 certain
// requests.
func (h *history) beyond(p promise, q rivals.Quota) (worst float64) {
	received := slices.Clone(h.received)
	byStart := slices.DeleteFunc(slices.Clone(h.answers), func(a answer) bool { return a.kind != answerAllowed })
	for i, first := range byStart {
		if i > mostStarts {
			break
		}
		for n, last := range received {
			if last > first.sent {
				worst = max(worst, float64(n+1)-p.most(h, q, first.sent, last))
			}
		}
		at, _ := slices.BinarySearch(received, first.received)
		received = slices.Delete(received, at, at+1) // the next interval starts after it was sent
	}
	return wholeUp(worst)
}

// atMostBeyond returns how many requests the system has possibly allowed beyond its promise, over the
// whole history.
func (h *history) atMostBeyond(p promise, q rivals.Quota) float64 {
	if len(h.sent) == 0 {
		return 0
	}
	first, last := h.answers[0].received, h.sent[len(h.sent)-1]
	return wholeUp(float64(len(h.sent)) - p.most(h, q, first, max(first, last)))
}

// wholeUp rounds up to a whole number of requests, 0 or more.
func wholeUp(v float64) float64 { return max(0, math.Ceil(v-1e-6)) }

// short returns how many requests the system has certainly refused although its promise allowed them. It
// ignores a part of a request, because systems read their clocks in steps.
func (h *history) short(p promise, q rivals.Quota) (worst float64) {
	for _, a := range h.answers {
		if a.kind == answerRefused {
			worst = max(worst, p.missing(h, q, a))
		}
	}
	return math.Floor(worst + 1e-6)
}
