// SPDX-License-Identifier: MIT

package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Fields that have no meaning together are an error.
func TestCalendarErrors(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		algorithms string
		l          Limit
		want       string
	}{
		{"TB SW SL LB C", Limit{N: 1, Unit: time.Hour, Zone: "Asia/Tokyo"}, "only a fixed window has a calendar or a zone"},
		{"TB SW SL LB C", Limit{N: 1, Calendar: "month"}, "only a fixed window has a calendar or a zone"},
		{"W", Limit{N: 1, Calendar: "fortnight"}, `calendar is "fortnight", expected week, month, year or total`},
		{"W", Limit{N: 1, Calendar: "day"}, `calendar is "day"`},
		{"W", Limit{N: 1, Calendar: "month", Unit: day}, "unit is 24h0m0s beside the calendar's month"},
		{"W", Limit{N: 1, Calendar: "month", AlignFirst: true}, "do not begin at the first request"},
		{"W", Limit{N: 1, Calendar: "total", Zone: "UTC"}, "a zone has no meaning for total"},
		{"W", Limit{N: 1, Unit: time.Minute, Zone: "UTC"}, "a zone has no meaning for a unit of 1m0s"},
		{"W", Limit{N: 1, Unit: day, Zone: "Europe/Nowhere"}, `zone "Europe/Nowhere" is not in the IANA database`},
		{"W", Limit{N: 1, Unit: day, Zone: "Local"}, `zone "Local" is not in the IANA database`},
		{"W", Limit{N: 0, Unit: day, Zone: "Local"}, `zone "Local" is not in the IANA database`},
		{"W", Limit{N: bounds.MaxWindowN + 1, Calendar: "year"}, "N is 1000000000000000, expected 0 to 999999999999999"},
		{"W", Limit{N: -1, Calendar: "year"}, "N is -1"},
	} {
		for name := range strings.FieldsSeq(tc.algorithms) {
			for _, a := range append(Algorithms(), Reservations()) {
				if !a.Called(name) {
					continue
				}
				if m, err := a.New(tc.l); m != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s %+v: error %v, want one with %q", name, tc.l, err, tc.want)
				}
			}
		}
	}
}

// UTC is the default zone, so a day in UTC keeps the states of a day without a zone.
func TestUTCIsNoZone(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{"": "1", "UTC": "1", "Asia/Tokyo": "calendar"} {
		m, err := newFixedWindow(Limit{N: 1, Unit: time.Hour, Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.StateVersion(); got != want {
			t.Errorf("zone %q: state version %q, want %q", zone, got, want)
		}
	}
}

// A state of a total never expires, and is not taken for held slots.
func TestTotalDoesNotExpire(t *testing.T) {
	t.Parallel()
	m, err := newFixedWindow(Limit{N: 3, Calendar: "total"})
	if err != nil {
		t.Fatal(err)
	}
	s := State{Cells: make([]uint64, 1)}
	if got := m.Expiry(s); got != 0 {
		t.Errorf("an unused state expires at %d, want 0", got)
	}
	s.Head = m.Take(s, time.Now().UnixMicro(), 1)
	if got := m.Expiry(s); got != bounds.EndOfTime {
		t.Errorf("a used state expires at %d, want the end of time", got)
	}
	if s.Head = m.Refund(s, time.Now().UnixMicro(), 1); m.Peek(s, 1e15, 3).Reset != 0 || !m.Peek(s, 1e15, 3).Allowed {
		t.Errorf("after a refund: %+v, want all allowed and no Reset", m.Peek(s, 1e15, 3))
	}
}

// Debt that a state cannot hold is cut off.
func TestCalendarDebt(t *testing.T) {
	t.Parallel()
	m, err := newFixedWindow(Limit{N: bounds.MaxWindowN, Calendar: "total"})
	if err != nil {
		t.Fatal(err)
	}
	s, all := State{Cells: make([]uint64, 1)}, int64(0)
	for range 10 {
		var cut int64
		s.Head, cut = Debit(m, s, 1, bounds.MaxWindowN)
		all += bounds.MaxWindowN - cut
	}
	if s.Cells[0] != maxWide || all != maxWide {
		t.Errorf("a count of %d, and %d debited, want %d", s.Cells[0], all, int64(maxWide))
	}
}

// Window is nothing for a limit without windows of the calendar.
func TestWindow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, time.March, 29, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		l      Limit
		length time.Duration
	}{
		{Limit{N: 1, Calendar: "month"}, 31 * 24 * time.Hour},
		{Limit{N: 1, Calendar: "month", Zone: "Europe/Berlin"}, 31*24*time.Hour - time.Hour},
		{Limit{N: 1, Unit: 24 * time.Hour, Zone: "Europe/Berlin"}, 23 * time.Hour},
		{Limit{N: 1, Unit: 24 * time.Hour}, 0},
		{Limit{N: 1, Calendar: "total"}, 0},
		{Limit{N: 1, Calendar: "fortnight"}, 0},
	} {
		begin, end := tc.l.Window(at)
		if got := end.Sub(begin); got != tc.length || got > 0 && (at.Before(begin) || !at.Before(end)) || got == 0 && !begin.IsZero() {
			t.Errorf("%+v: %v to %v, want a length of %v", tc.l, begin, end, tc.length)
		}
	}
}

// The script gets the begins of the windows around a moment, without a gap and in order.
func TestAround(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{N: 1, Calendar: "year", Zone: "Africa/Cairo"}, {N: 1, Calendar: "month"}, {N: 1, Unit: time.Hour, Zone: "Asia/Kolkata"},
	} {
		m, err := newFixedWindow(l)
		if err != nil {
			t.Fatal(err)
		}
		around, now := m.(Scripted).Script().Around, time.Date(2026, time.April, 24, 12, 0, 0, 0, time.UTC)
		begins := around(now.UnixMicro())
		if len(begins) != 2*beside+2 {
			t.Fatalf("%+v: %d moments, want %d", l, len(begins), 2*beside+2)
		}
		for i, begin := range begins[:len(begins)-1] {
			b, e := l.Window(time.UnixMicro(begin))
			if b.UnixMicro() != begin || e.UnixMicro() != begins[i+1] {
				t.Errorf("%+v: window %d is %v to %v, and the moments are %v", l, i, b, e, begins)
			}
		}
		if begins[beside] > now.UnixMicro() || begins[beside+1] <= now.UnixMicro() {
			t.Errorf("%+v: %v is not between the moments in the middle of %v", l, now, begins)
		}
		if first := around(0); first[0] != 0 || first[len(first)-1] <= 0 {
			t.Errorf("%+v: at 1970 the moments are %v", l, first)
		}
	}
}

func BenchmarkCalendar(b *testing.B) {
	m, err := newFixedWindow(Limit{N: 1e12, Unit: 24 * time.Hour, Zone: "Europe/Berlin"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("same window", func(b *testing.B) {
		s := State{Cells: make([]uint64, 1)}
		for now := int64(1.78e15); b.Loop(); now++ {
			if m.Peek(s, now, 1).Allowed {
				s.Head = m.Take(s, now, 1)
			}
		}
	})
	b.Run("next window", func(b *testing.B) {
		now := int64(0)
		for b.Loop() {
			now = (now + 86_400_000_000) % 2e15
			m.Peek(State{}, now, 1)
		}
	})
}
