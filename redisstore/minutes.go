// SPDX-License-Identifier: MIT

package redisstore

import (
	"cmp"
	"context"
	_ "embed" // the Lua sources
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Each gateway reports what it has decided by minute, so that one page can show the whole fleet. A
// report is a part of the heartbeat:
//
//	gateway A   heartbeat 12:03 "40 2 0 0"                    diana:minute:12:03
//	gateway B   heartbeat 12:03 "17 0 0 0", 12:02 "60 9 0 0"      A "40 2 0 0 118", B "17 0 0 0 5"
//
// The numbers are totals of one gateway and one minute, and Redis keeps the larger ones. So a report may
// be repeated, may arrive late, and may get lost: the next one has the same numbers or larger ones.
//
// The last number of each value is that of the report. Each heartbeat reads the number of the latest
// report that Redis has confirmed. If Redis has a smaller one, it has lost what it was sent last: it has
// restarted from an older copy, or empty. Then the gateway sends its whole day again.
//
// Rejected: adding to sums in Redis. A call without an answer could then count twice or never.

//go:embed minutes.lua
var minutesLua string

//go:embed totals.lua
var totalsLua string

var totalsScript = plainScript(totalsLua)

const (
	minutesOfDay  = 24 * 60
	mostReported  = 60   // minutes in one heartbeat
	mostRead      = 60   // minutes in one call
	mostValues    = 2000 // in one call, because requests wait meanwhile; Redis sums these in about a millisecond
	minuteInMicro = int64(time.Minute / time.Microsecond)
)

// Minute is what was decided in one minute.
type Minute struct {
	At                                       time.Time // when it began, by Redis' clock
	Allowed, Refused, ShadowRefused, Delayed int64
	Gateways                                 int // that have reported it; Options.Minutes need not set it
}

// minute returns the minute since 1970, by Redis' clock as far as it is known.
func (s *Store) minute() int64 { return s.now() / minuteInMicro }

// minuteTime returns when a minute began.
func minuteTime(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// numbers are those of a Minute.
type numbers struct{ allowed, refused, shadow, delayed int64 }

// reported is a minute of a report.
type reported struct {
	minute int64
	numbers
}

// report is what one heartbeat says of minutes.
type report struct {
	number  int64
	check   int64 // the minute of the latest report that Redis has confirmed; 0: none
	checked int64 // the number of that report
	minutes []reported
}

// text returns a report for heartbeat.lua.
func (r *report) text() []byte {
	b := []byte("0")
	if r.check != 0 {
		b = []byte("1")
	}
	for _, m := range r.minutes {
		b = fmt.Appendf(b, " %d %d %d %d %d", m.allowed, m.refused, m.shadow, m.delayed, r.number)
	}
	return b
}

// appendKeys returns the keys of a heartbeat with this report.
func (r *report) appendKeys(keys []string, s *Store) []string {
	keys = slices.Clip(keys)
	if r.check != 0 {
		keys = append(keys, s.minuteKey(r.check))
	}
	for _, m := range r.minutes {
		keys = append(keys, s.minuteKey(m.minute))
	}
	return keys
}

// minuteKey returns the key of a minute. In a Cluster all minutes have the tag of the heartbeat's keys.
func (s *Store) minuteKey(minute int64) string { return s.keys.minute(s.batchers[0].tag, minute) }

// reports knows which minutes Redis has.
type reports struct {
	minutes func(time.Time, func(Minute)) // Options.Minutes

	mu      sync.Mutex        // guards the rest
	has     map[int64]numbers // by minute, what Redis has confirmed
	number  int64             // of the latest report
	check   int64             // as in report
	checked int64
	left    bool   // the latest report has not all that Redis lacks
	failure string // why Redis has not kept the latest report
}

// note has Options.Minutes assign what was decided since the call before to a minute.
func (r *reports) note(now int64) {
	if r.minutes != nil {
		r.minutes(minuteTime(now), func(Minute) {})
	}
}

// next returns the next report: the latest minutes that Redis does not have.
func (r *reports) next(now int64) (next report) {
	if r.minutes == nil {
		return next
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.has, func(minute int64, _ numbers) bool { return minute <= now-minutesOfDay })
	if r.check <= now-minutesOfDay { // Redis may have forgotten it in time
		r.check = 0
	}
	r.minutes(minuteTime(now), func(m Minute) {
		minute, n := m.At.Unix()/60, numbers{m.Allowed, m.Refused, m.ShadowRefused, m.Delayed}
		if has, ok := r.has[minute]; !ok || has != n {
			next.minutes = append(next.minutes, reported{minute, n})
		}
	})
	slices.SortFunc(next.minutes, func(a, b reported) int { return cmp.Compare(b.minute, a.minute) })
	r.left = len(next.minutes) > mostReported
	next.minutes = next.minutes[:min(len(next.minutes), mostReported)]
	if len(next.minutes) > 0 {
		r.number++
	}
	next.number, next.check, next.checked = r.number, r.check, r.checked
	return next
}

// answered notes Redis' answer to a report: the number that it had in the minute to check, and why it has not
// kept the report.
func (r *reports) answered(of report, newest int64, failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure = failure; failure != "" {
		return
	}
	if of.check != 0 && newest < of.checked {
		clear(r.has)
		r.check, r.left = 0, true
	}
	if r.has == nil {
		r.has = map[int64]numbers{}
	}
	for _, m := range of.minutes {
		r.has[m.minute] = m.numbers
	}
	if len(of.minutes) > 0 && (r.check == 0 || of.number > r.checked) {
		r.check, r.checked = of.minutes[0].minute, of.number
	}
}

// pending reports whether Redis lacks minutes that the latest report did not have.
func (r *reports) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left && r.failure == ""
}

// err returns why Redis has not kept the latest report.
func (r *reports) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		return nil
	}
	return errors.New("redisstore: Redis does not keep the minutes: " + r.failure)
}

// EachMinute calls f for each minute from since on, but for the last day alone, that a gateway has reported:
// the newest first, with the sums of all gateways. A gateway reports within a second, from its first decision
// on, also a minute without decisions. ErrUnavailable means that Redis cannot be asked. The calls to Redis are
// small, so that requests do not wait for them.
func (s *Store) EachMinute(ctx context.Context, since time.Time, f func(Minute)) error {
	if !s.Up() {
		return ErrUnavailable
	}
	if err := s.gateway.reports.err(); err != nil {
		return err
	}
	now := s.minute() + 1 // the clock may be known better to another gateway
	first := max(since.Unix()/60, now-minutesOfDay)
	for size := int64(10); now >= first; {
		last := now
		keys := make([]string, 0, mostRead)
		for ; now >= first && last-now < size; now-- {
			keys = append(keys, s.minuteKey(now))
		}
		most, err := s.readMinutes(ctx, last, keys, f)
		if err != nil {
			return err
		}
		size = min(mostRead, max(1, mostValues/int64(max(most, 1))))
	}
	return nil
}

// readMinutes calls f for each minute of the keys, which are those of last and the minutes before it. It returns
// the largest number of gateways of a minute.
func (s *Store) readMinutes(ctx context.Context, last int64, keys []string, f func(Minute)) (most int, err error) {
	reply, err := s.link.run(ctx, totalsScript, keys, nil)
	if err != nil {
		return 0, err
	}
	answer, err := reply.AsStrSlice()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(answer) != len(keys) {
		return 0, errNoMinutes
	}
	for i, text := range answer {
		m := Minute{At: minuteTime(last - int64(i))}
		if _, err := fmt.Sscan(text, &m.Gateways, &m.Allowed, &m.Refused, &m.ShadowRefused, &m.Delayed); err != nil {
			return 0, errNoMinutes
		}
		if m.Gateways > 0 {
			f(m)
		}
		most = max(most, m.Gateways)
	}
	return most, nil
}

var errNoMinutes = fmt.Errorf("%w: the sums of minutes cannot be read", ErrUnavailable)
