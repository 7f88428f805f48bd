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

	"github.com/diana-limiter/diana/internal/minutes"
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
	mostReported  = 60   // minutes in one heartbeat
	mostRead      = 60   // minutes in one call
	mostValues    = 2000 // in one call, because requests wait meanwhile; Redis sums these in about a millisecond
	minuteInMicro = int64(time.Minute / time.Microsecond)
)

// minute returns the minute since 1970, by Redis' clock as far as it is known.
func (s *Store) minute() int64 { return s.now() / minuteInMicro }

// minuteTime returns when a minute began.
func minuteTime(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// reported is a minute of a report.
type reported struct {
	minute int64
	minutes.Counts
}

// report is what one heartbeat says of minutes.
type report struct {
	number  int64
	check   int64 // the minute of the latest report that Redis has confirmed; 0: none
	checked int64 // the number of that report
	list    []reported
}

// text returns a report for heartbeat.lua.
func (r *report) text() []byte {
	b := []byte("0")
	if r.check != 0 {
		b = []byte("1")
	}
	for _, m := range r.list {
		b = fmt.Appendf(b, " %d %d %d %d %d", m.Allowed, m.Refused, m.ShadowRefused, m.Delayed, r.number)
	}
	return b
}

// appendKeys returns the keys of a heartbeat with this report.
func (r *report) appendKeys(keys []string, s *Store) []string {
	keys = slices.Clip(keys)
	if r.check != 0 {
		keys = append(keys, s.minuteKey(r.check))
	}
	for _, m := range r.list {
		keys = append(keys, s.minuteKey(m.minute))
	}
	return keys
}

// minuteKey returns the key of a minute. In a Cluster all minutes have the tag of the heartbeat's keys.
func (s *Store) minuteKey(minute int64) string { return s.keys.minute(s.batchers[0].tag, minute) }

// eachMinute is the type of Options.Minutes.
type eachMinute = func(now time.Time, f func(at time.Time, allowed, refused, shadowRefused, delayed int64))

// reports knows which minutes Redis has.
type reports struct {
	source eachMinute // Options.Minutes

	mu      sync.Mutex               // guards the rest
	has     map[int64]minutes.Counts // by minute, what Redis has confirmed
	number  int64                    // of the latest report
	check   int64                    // as in report
	checked int64
	left    bool   // the latest report has not all that Redis lacks
	failure string // why Redis has not kept the latest report
}

// note has Options.Minutes assign what was decided since the call before to a minute.
func (r *reports) note(now int64) {
	if r.source != nil {
		r.source(minuteTime(now), func(time.Time, int64, int64, int64, int64) {})
	}
}

// next returns the next report: the latest minutes that Redis does not have.
func (r *reports) next(now int64) (next report) {
	if r.source == nil {
		return next
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.has, func(minute int64, _ minutes.Counts) bool { return minute <= now-minutes.Day })
	if r.check <= now-minutes.Day { // Redis may have forgotten it in time
		r.check = 0
	}
	r.source(minuteTime(now), func(at time.Time, allowed, refused, shadowRefused, delayed int64) {
		minute, c := at.Unix()/60, minutes.Counts{Allowed: allowed, Refused: refused, ShadowRefused: shadowRefused, Delayed: delayed}
		if has, ok := r.has[minute]; !ok || has != c {
			next.list = append(next.list, reported{minute, c})
		}
	})
	slices.SortFunc(next.list, func(a, b reported) int { return cmp.Compare(b.minute, a.minute) })
	r.left = len(next.list) > mostReported
	next.list = next.list[:min(len(next.list), mostReported)]
	if len(next.list) > 0 {
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
		r.has = map[int64]minutes.Counts{}
	}
	for _, m := range of.list {
		r.has[m.minute] = m.Counts
	}
	if len(of.list) > 0 && (r.check == 0 || of.number > r.checked) {
		r.check, r.checked = of.list[0].minute, of.number
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

// EachMinute calls f for each minute from since on, but at most for the last day, that a gateway has reported.
// The newest minute is the first. f gets when it began by Redis' clock, how many gateways have reported it, and
// the sums of what they have decided. A gateway reports within a second, and from its first decision on it also
// reports a minute without decisions. The calls to Redis are small, so that requests do not wait for
// them. If Redis cannot be asked, EachMinute returns ErrUnavailable, perhaps after calls of f.
func (s *Store) EachMinute(ctx context.Context, since time.Time, f func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)) error {
	if !s.Up() {
		return ErrUnavailable
	}
	if err := s.gateway.reports.err(); err != nil {
		return err
	}
	now := s.minute() + 1 // the clock may be known better to another gateway
	first := max(since.Unix()/60, now-minutes.Day)
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

// sumOfMinute is the type of the function that EachMinute calls.
type sumOfMinute = func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)

// readMinutes calls f for each minute of the keys, which are those of last and the minutes before it. It returns
// the largest number of gateways of a minute.
func (s *Store) readMinutes(ctx context.Context, last int64, keys []string, f sumOfMinute) (most int, err error) {
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
		var gateways int
		var c minutes.Counts
		if _, err := fmt.Sscan(text, &gateways, &c.Allowed, &c.Refused, &c.ShadowRefused, &c.Delayed); err != nil {
			return 0, errNoMinutes
		}
		if gateways > 0 {
			f(minuteTime(last-int64(i)), gateways, c.Allowed, c.Refused, c.ShadowRefused, c.Delayed)
		}
		most = max(most, gateways)
	}
	return most, nil
}

var errNoMinutes = fmt.Errorf("%w: the sums of minutes cannot be read", ErrUnavailable)
