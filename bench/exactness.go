// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/redistest"
)

// The group exactness measures how exactly limits are kept. 64 clients ask each system from outside for one key, far more
// often than the limit allows. Each phase has a key of its own. It takes seconds within one minute, so whatever the
// windows of a system are, it may allow n requests, and a bucket also what drips in meanwhile.

// The phases. An outage of Redis meets clients that have used up their limit.
const (
	coldPhase  = "1,000 a minute, a new key"
	flushPhase = "1,000 a minute, FLUSHALL after 700"
	killPhase  = "1,000 a minute, Redis is killed and returns empty"
	pausePhase = "1,000 a minute, Redis is paused"

	exactWorkload = "3 processes, 256 callers each"
)

var exactPhases = []string{coldPhase, flushPhase, killPhase, pausePhase}

var (
	beyond     = countOf("beyond", measure.Less) // what the system may allow, certainly
	short      = countOf("short", measure.Less)  // of that at the end, certainly
	unanswered = countOf("unanswered", measure.Less)
	alone      = countOf("allowed without Redis", measure.Neither) // as Diana reports
	meanwhile  = [4]measure.Figure{                                // during an outage, in the order of answerKind
		countOf("allowed meanwhile", measure.Neither), countOf("refused meanwhile", measure.Neither),
		countOf("errors meanwhile", measure.Less), countOf("unanswered meanwhile", measure.Less),
	}

	// Of the exact workload.
	allowed  = countOf("allowed", measure.Neither)
	refilled = countOf("refilled", measure.Neither) // at most, meanwhile
)

func countOf(what string, better measure.Direction) measure.Figure {
	return measure.Figure{Name: what, Format: measure.PlainText, Better: better}
}

// The limit of all phases, the part of it that is used before FLUSHALL, and the limit of the exact workload.
var (
	exactMinute = rivals.Quota{N: 1000, Per: time.Minute}
	exactDay    = rivals.Quota{N: 5000, Per: 24 * time.Hour}
)

const (
	exactUsed    = 700
	exactClients = 64
	exactServers = 3 // of each system, which share counters in Redis
	exactCallers = 256
	exactAsks    = exactServers * exactCallers * 30
)

func exactnessGroup() group {
	lines := []page.Line{
		page.Custom("Limits that Diana kept exactly by W, TB, SW and SL, with 3 processes and 256 callers each", measureKept).Must("G5",
			page.Bound{Text: "all", Met: func(m page.Measured) bool { return m.Value == 0 }}),
	}
	for _, phase := range []string{flushPhase, killPhase} {
		for _, system := range []string{dianaGlobalTB, dianaGlobalSL} {
			lines = append(lines, page.Compare("Beyond the limit: "+system+", "+phase, phase, beyond, system).Must("X1", page.AtMost(beyond, 30)))
		}
	}
	return group{measure: measureExactness, Chapter: page.Chapter{
		Name: "exactness", Title: "Exactness", Table: exactnessTable, Lines: lines,
		Figures: slices.Concat([]measure.Figure{beyond, short, failures, unanswered, alone}, meanwhile[:],
			[]measure.Figure{allowed, refilled}),
	}}
}

// measureKept counts the attempts that did not keep their limit.
func measureKept(r *measure.Report) (m page.Measured, ok bool) {
	exact, all := 0, 0
	for _, w := range r.Rows {
		if w.Workload != exactWorkload {
			continue
		}
		for i, n := range w.Series(allowed).Rounds {
			all++
			low := float64(exactDay.N)
			high := low + w.Series(refilled).Rounds[i]
			if n >= low && n <= high && w.Series(failures).Rounds[i] == 0 {
				exact++
			}
		}
	}
	m.Value, m.Diana = float64(all-exact), fmt.Sprintf("%d of %d attempts", exact, all)
	return m, all > 0
}

// exactnessTable has a row for each system and a column for each phase. A cell has the worst round.
func exactnessTable(r *measure.Report) string {
	head := []string{"Exactness", "promise", "a new key", "FLUSHALL after 700", "Redis dies and returns empty", "Redis hangs"}
	var lines [][]string
	for _, s := range exactSystems() {
		cells := []string{s.name, s.promise}
		for _, phase := range exactPhases {
			cells = append(cells, exactCell(r.Find(phase, s.name)))
		}
		lines = append(lines, cells)
	}
	return page.Table(head, lines) + "\n"
}

// exactCell tells how a system kept its promise in a phase, and how it answered during an outage.
func exactCell(m *measure.Row) string {
	if m == nil {
		return "-"
	}
	var parts []string
	add := func(format string, figures ...measure.Figure) {
		var n float64
		for _, f := range figures {
			if s := m.Series(f); s != nil {
				n += slices.Max(s.Rounds)
			}
		}
		if n >= 10_000 {
			n, format = n/1000, strings.Replace(format, "%.0f", "%.0f k", 1)
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add("**+%.0f**", beyond)
	add("**-%.0f**", short)
	if parts == nil {
		parts = append(parts, "0")
	}
	add("%.0f without Redis", alone)
	if m.Series(meanwhile[answerAllowed]) == nil {
		add("%.0f errors", failures, unanswered)
		return strings.Join(parts, ", ")
	}
	for i, what := range []string{"refused", "errors", "unanswered"} {
		add("%.0f "+what, meanwhile[i+1])
	}
	return strings.Join(parts, ", ")
}

// exactYard holds the servers of the systems.
type exactYard struct {
	*measure.Yard
	redis *redistest.Server
	envoy *rivals.RateLimitService
	keys  int // that were used up
}

func measureExactness(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "", func(y *measure.Yard) error {
		x := &exactYard{Yard: y, redis: y.Redis(r), envoy: rivals.BuildEnvoy(ctx, r, y)}
		r.Note("  %s", exactWorkload)
		if err := x.measureExact(ctx, r); err != nil {
			return err
		}
		systems := slices.DeleteFunc(exactSystems(), func(s *exactSystem) bool { return s.name == rivals.Envoy && !x.envoy.Built() })
		rounds := r.AtMost(2) // because each takes a minute
		return rounds.Interleave(ctx, len(systems), func(round, i int) error {
			r.Note("  round %d of %d: %s", round+1, rounds.Rounds, systems[i].name)
			if err := x.phases(ctx, r, systems[i], round); err != nil {
				return fmt.Errorf("%s: %w", systems[i].name, err)
			}
			return nil
		})
	})
}

// measureExact lets three processes with 256 callers each use up one limit together. The limit is for a day, so nothing
// becomes available again meanwhile, except one token of the bucket every 17 seconds.
func (x *exactYard) measureExact(ctx context.Context, r *measure.Run) error {
	s := &exactSystem{name: dianaPatient, waits: 4 * rivals.Patience}
	defer s.stop()
	if err := x.start(ctx, s); err != nil {
		return err
	}
	return r.Interleave(ctx, len(exactAlgorithms), func(round, i int) error {
		algorithm := exactAlgorithms[i]
		s.path = "/day/" + algorithm
		awaitRoom(exactDay, time.Minute)
		began := time.Now()
		answers, err := s.drive(ctx, exactServers*exactCallers, fmt.Sprint("exact", round), began, exactAsks, nil)
		n := counts(answers, 0, time.Hour)
		m := r.Row(exactWorkload, algorithm, measure.Diana)
		m.Add(allowed, n[answerAllowed])
		m.Add(failures, n[answerFailed]+n[answerLate]+n[answerAlone])
		refill := 0.0
		if algorithm == "TB" {
			refill = math.Floor(drips(exactDay, time.Since(began)))
		}
		m.Add(refilled, refill)
		return err
	})
}

// awaitRoom waits for the next window of the clock if this one ends too soon.
func awaitRoom(q rivals.Quota, need time.Duration) {
	if left := time.Until(time.Now().Truncate(q.Per).Add(q.Per)); left < need {
		time.Sleep(left)
	}
}

// drips returns what a bucket gets in a while.
func drips(q rivals.Quota, d time.Duration) float64 {
	return float64(q.N) * float64(d) / float64(q.Per)
}

// step is something that happens to a system while clients ask.
type step struct {
	at time.Duration
	do func() error
}

// phases measures a system in all phases. The outages are in the first round only, because they take the longest.
func (x *exactYard) phases(ctx context.Context, r *measure.Run, s *exactSystem, round int) error {
	flush := func() error { _, err := x.redis.Do("FLUSHALL", "SYNC"); return err }
	if err := flush(); err != nil {
		return err
	}
	defer s.stop()
	if err := x.start(ctx, s); err != nil {
		return err
	}
	part := r.Span(500 * time.Millisecond)
	caught := func(f func()) func() error { return func() error { return measure.Caught(f) } }
	for _, p := range []struct {
		name  string
		parts int
		steps []step
	}{
		{coldPhase, 2, nil},
		{flushPhase, 8, []step{{0, flush}}},
		{killPhase, 8, []step{{2 * part, caught(x.redis.Kill)}, {5 * part, caught(x.redis.Restart)}}},
		{pausePhase, 8, []step{{2 * part, caught(x.redis.Freeze)}, {5 * part, caught(x.redis.Thaw)}}},
	} {
		if round > 0 && p.name != coldPhase {
			break
		}
		err := s.becomesReady(ctx)
		if err == nil {
			err = x.phase(ctx, r, s, p.name, time.Duration(p.parts)*part, p.steps)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// phase lets the clients ask and adds what came of it. FLUSHALL comes after some requests. Other steps come at their
// time, and an outage is from the end of the first one to the begin of the last one.
func (x *exactYard) phase(ctx context.Context, r *measure.Run, s *exactSystem, phase string, d time.Duration, steps []step) (err error) {
	x.keys++
	key := fmt.Sprintf("key%d", x.keys)
	awaitRoom(exactMinute, d+5*time.Second)
	began := time.Now()
	var answers []answer
	if phase == flushPhase {
		if answers, err = s.drive(ctx, exactClients, key, began, exactUsed, nil); err == nil {
			err = steps[0].do()
		}
		if steps = nil; err != nil {
			return err
		}
	}
	var outage [2]time.Duration
	more, err := s.drive(ctx, exactClients, key, began, math.MaxInt64, func() error {
		for i, next := range steps {
			time.Sleep(next.at - time.Since(began))
			outage[1] = time.Since(began)
			if err := next.do(); err != nil {
				return err
			}
			if i == 0 {
				outage[0] = time.Since(began)
			}
		}
		time.Sleep(d - time.Since(began))
		return nil
	})
	if answers = append(answers, more...); err == nil && len(answers) == 0 {
		err = errors.New("no answer")
	}
	if err != nil {
		return err
	}
	m, n := r.Row(phase, s.name, s.kind), counts(answers, 0, time.Hour)
	over, under := s.assess(answers, n[answerAllowed]+n[answerAlone])
	m.Add(beyond, over)
	m.Add(failures, n[answerFailed])
	m.Add(unanswered, n[answerLate])
	if s.kind == measure.Diana {
		m.Add(alone, n[answerAlone])
	}
	switch phase {
	case coldPhase:
		m.Add(short, under)
	case killPhase, pausePhase:
		n := counts(answers, outage[0], outage[1])
		n[answerAllowed] += n[answerAlone]
		for i, f := range meanwhile {
			m.Add(f, n[i])
		}
	}
	return nil
}

// assess compares what a system allowed with its limit, and counts only what is certain: a request was decided at some
// moment between its sending and its answer. beyond is over what the bucket can have got until the last answer. short is
// under what it had when a request was refused, less the one that it holds in part, and the grains of its clock.
func (s *exactSystem) assess(answers []answer, admitted float64) (beyond, short float64) {
	first, firstAnswer := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	var last, lastRefused time.Duration
	for _, a := range answers {
		first, firstAnswer = min(first, a.sent), min(firstAnswer, a.received)
		switch a.kind {
		case answerAllowed, answerAlone:
			last = max(last, a.received)
		case answerRefused:
			lastRefused = max(lastRefused, a.sent)
		}
	}
	most, least := float64(exactMinute.N), float64(exactMinute.N)
	if s.bucket {
		most += drips(exactMinute, last-first+time.Millisecond)
		least += drips(exactMinute, lastRefused-firstAnswer-2*time.Millisecond) - 1
	}
	if lastRefused > 0 {
		short = max(0, math.Floor(least-admitted+1e-6))
	}
	return max(0, math.Ceil(admitted-most-1e-6)), short
}
