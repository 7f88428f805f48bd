// SPDX-License-Identifier: MIT

package limit

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Units of the calendar. The first two are units of time that a zone shifts, and the others are those of
// Limit.Calendar.
const (
	hour  = "hour"
	day   = "day"
	week  = "week"
	month = "month"
	year  = "year"
	total = "total"
)

// turns are the moments at which the windows of a unit begin in a zone.
//
// A day, week, month or year begins at the first moment at which a clock of the zone shows its first day.
// So a day has 23, 24 or 25 hours. A day without a midnight begins when the clock is set forward. If a
// clock is set back over midnight, the day that had begun continues. A day that a zone skips has no window.
//
// An hour begins when the clock shows a full hour, also when it shows the same hour again. It also begins
// when the zone changes its offset by a part of an hour.
type turns struct {
	unit string
	zone *time.Location
}

// window is a part of time, in microseconds: from begin until before end.
type window struct{ begin, end int64 }

// newTurns returns the turns of a limit with a Calendar or a Zone.
func newTurns(l Limit) (t turns, err error) {
	switch l.Calendar {
	case "":
		switch l.Unit {
		case time.Hour:
			t.unit = hour
		case 24 * time.Hour:
			t.unit = day
		default:
			return t, fmt.Errorf("limit: a zone has no meaning for a unit of %v, expected hour, day, week, month or year", l.Unit)
		}
	case week, month, year, total:
		t.unit = l.Calendar
	default:
		return t, fmt.Errorf("limit: calendar is %q, expected week, month, year or total", l.Calendar)
	}
	switch {
	case l.Calendar != "" && l.Unit != 0:
		return t, fmt.Errorf("limit: unit is %v beside the calendar's %s, expected none", l.Unit, t.unit)
	case l.AlignFirst:
		return t, errors.New("limit: windows of the calendar do not begin at the first request")
	case t.unit == total && l.Zone != "":
		return t, errors.New("limit: a zone has no meaning for total, expected hour, day, week, month or year")
	}
	t.zone, err = loadZone(l.Zone)
	return t, err
}

// zones are the time zones in use, by their names, because a configuration can have 100,000 rules and a
// zone is read from a file. The IANA database has about 600 names.
var zones sync.Map

// loadZone returns the time zone of that name in the IANA database.
func loadZone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	loaded, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("limit: zone %q is not in the IANA database, expected a name such as Europe/Berlin", name)
	}
	known, _ := zones.LoadOrStore(name, loaded)
	return known.(*time.Location), nil
}

// window returns the window of a moment.
func (t turns) window(at int64) window {
	var begin, end int64
	switch second := at / 1e6; t.unit {
	case total:
		return window{0, bounds.EndOfTime}
	case hour:
		begin, end = t.hour(second)
	default:
		begin, end = t.days(second)
	}
	return window{max(begin, 0) * 1e6, end * 1e6}
}

// days returns the window of a moment in a unit of whole days. Here moments are seconds since 1970.
func (t turns) days(at int64) (begin, end int64) {
	_, offset := time.Unix(at, 0).In(t.zone).Zone()
	first := t.first(time.Unix(at+int64(offset), 0).UTC())
	for {
		next := t.next(first)
		if end = t.shows(next); end > at {
			return t.shows(first), end
		}
		first = next // the clock was set back over midnight
	}
}

// first returns the first day of the unit that has the given day. Days are times at midnight, UTC.
func (t turns) first(of time.Time) time.Time {
	y, m, d := of.Date()
	switch t.unit {
	case week:
		d -= (int(of.Weekday()) + 6) % 7 // days since Monday
	case month:
		d = 1
	case year:
		m, d = time.January, 1
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// next returns the first day of the next unit.
func (t turns) next(first time.Time) time.Time {
	switch t.unit {
	case week:
		return first.AddDate(0, 0, 7)
	case month:
		return first.AddDate(0, 1, 0)
	case year:
		return first.AddDate(1, 0, 0)
	}
	return first.AddDate(0, 0, 1)
}

// mostOffset is more than the offset of any zone from UTC, in seconds.
const mostOffset = 26 * 3600

// shows returns the first moment at which a clock of the zone shows that day or a later one.
func (t turns) shows(day time.Time) int64 {
	midnight := day.Unix()
	for at := midnight - mostOffset; ; {
		from := time.Unix(at, 0).In(t.zone)
		_, offset := from.Zone()
		begin := max(midnight-int64(offset), at)
		_, change := from.ZoneBounds()
		until := change.Unix()
		if until <= at { // Go 1.26 has such bounds on 31 December of leap years from 2040 on
			until = at + 900
		}
		if change.IsZero() || begin < until {
			return begin
		}
		at = until
	}
}

// hour returns the hour of a moment.
func (t turns) hour(at int64) (begin, end int64) {
	now := time.Unix(at, 0).In(t.zone)
	_, offset := now.Zone()
	begin = at - ((at+int64(offset))%3600+3600)%3600
	end = begin + 3600
	since, until := now.ZoneBounds()
	if s := since.Unix(); !since.IsZero() && s > begin && t.breaks(s) {
		begin = s
	}
	if u := until.Unix(); !until.IsZero() && u < end && t.breaks(u) {
		end = u
	}
	return begin, end
}

// breaks reports whether the zone changes its offset by a part of an hour at that moment.
func (t turns) breaks(at int64) bool {
	_, before := time.Unix(at-1, 0).In(t.zone).Zone()
	_, after := time.Unix(at, 0).In(t.zone).Zone()
	return (after-before)%3600 != 0
}
