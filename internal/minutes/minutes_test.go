// SPDX-License-Identifier: MIT

package minutes_test

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func all(l *minutes.Ledger, now time.Time) map[int64]minutes.Counts {
	list := map[int64]minutes.Counts{}
	l.Each(now, func(at time.Time, c minutes.Counts) { list[(at.Unix()-noon.Unix())/60] = c })
	return list
}

// Before the first decision there is no minute. Afterwards each minute with a Note is there, also one without
// decisions.
func TestLedgerBegins(t *testing.T) {
	t.Parallel()
	var l minutes.Ledger
	l.Note(noon, minutes.Counts{})
	if got := all(&l, noon); len(got) > 0 {
		t.Errorf("%v before the first decision", got)
	}
	one := minutes.Counts{Allowed: 1}
	l.Note(noon.Add(time.Minute), one)
	l.Note(noon.Add(2*time.Minute), one)
	if got, want := all(&l, noon.Add(2*time.Minute)), map[int64]minutes.Counts{1: one, 2: {}}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A clock that is set back loses nothing, and no count falls.
func TestLedgerWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	var l minutes.Ledger
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	for i, minute := range []int{0, 1, 0, -60, 1} {
		l.Note(at(minute), minutes.Counts{Refused: int64(i + 1)})
	}
	want := map[int64]minutes.Counts{0: {Refused: 2}, 1: {Refused: 2}, -60: {Refused: 1}}
	if got := all(&l, at(1)); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Each minute has what a slow model has, also after a pause of days, and if two goroutines have read the totals in
// the other order.
func TestLedgerAgainstModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var l minutes.Ledger
		var total, before minutes.Counts
		model := map[int64]minutes.Counts{}
		now := noon
		for range 500 {
			now = now.Add([]time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour, 30 * time.Hour}[min(r.IntN(100)/20, r.IntN(5))])
			more := minutes.Counts{Allowed: 1 + r.Int64N(9), Refused: r.Int64N(3), ShadowRefused: r.Int64N(2), Delayed: r.Int64N(2)}
			before, total = total, total.Plus(more)
			minute := (now.Unix() - noon.Unix()) / 60
			model[minute] = model[minute].Plus(more)
			l.Note(now, total)
			l.Note(now, before)
			maps.DeleteFunc(model, func(m int64, _ minutes.Counts) bool { return m <= minute-minutes.Day })
			if got := all(&l, now); !maps.Equal(got, model) {
				t.Fatalf("%v, want %v", got, model)
			}
		}
	}
}
