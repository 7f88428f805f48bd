// SPDX-License-Identifier: MIT

package limit

import (
	"archive/zip"
	"flag"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine
)

var everyZone = flag.Bool("every-zone", false, "compare windows in every zone of the IANA database, not in a sample")

// zoneNames returns the names of all zones that come with Go.
func zoneNames(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	if len(names) < 400 {
		t.Fatalf("Go has %d zones, want all of the IANA database", len(names))
	}
	return names
}

// strangeZones have changes at midnight, skip a day, or have offsets of parts of an hour.
var strangeZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "America/Havana", "Asia/Beirut",
	"Asia/Kathmandu", "Asia/Tehran", "Africa/Cairo", "Africa/Monrovia", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein",
}

// Windows are those of a slow model that looks at a clock of the zone, second by second.
func TestTurnsAgainstModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, seed))
	names, moments := zoneNames(t), 3
	if !*everyZone {
		rnd.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		names, moments = append(names[:20], strangeZones...), 1
	}
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for range moments {
			for _, at := range []int64{rnd.Int64N(4e9), nearChange(rnd, zone)} {
				for _, unit := range []string{hour, day, week, month, year} {
					compareTurns(t, turns{unit, zone}, at)
				}
			}
		}
	}
}

// nearChange returns a moment within two days of a random change of a zone's offset, if there is one.
func nearChange(rnd *rand.Rand, zone *time.Location) int64 {
	at := rnd.Int64N(4e9)
	if _, change := time.Unix(at, 0).In(zone).ZoneBounds(); !change.IsZero() && change.Unix() > 0 {
		at = change.Unix()
	}
	return max(at-86400*2+rnd.Int64N(4*86400), 0)
}

// compareTurns compares the window of a moment in seconds with that of the model, and with its neighbours.
func compareTurns(t *testing.T, u turns, at int64) {
	t.Helper()
	model := u.modelDays
	if u.unit == hour {
		model = u.modelHour
	}
	begin, end := model(at)
	want := window{max(begin, 0) * 1e6, end * 1e6}
	got := u.window(at*1e6 + 999_999)
	if got != want {
		t.Fatalf("%s in %v at %v: window %v to %v, want %v to %v", u.unit, u.zone, time.Unix(at, 0).UTC(),
			time.UnixMicro(got.begin).In(u.zone), time.UnixMicro(got.end).In(u.zone),
			time.UnixMicro(want.begin).In(u.zone), time.UnixMicro(want.end).In(u.zone))
	}
	if first, last, next := u.window(got.begin), u.window(got.end-1), u.window(got.end); first != got || last != got || next.begin != got.end {
		t.Fatalf("%s in %v: the window of %v is %v, that of its begin %v, of its last moment %v, and the next is %v",
			u.unit, u.zone, time.Unix(at, 0).UTC(), got, first, last, next)
	}
}

// modelDays is turns.days.
func (u turns) modelDays(at int64) (begin, end int64) {
	first := u.modelFirst(time.Unix(at, 0).In(u.zone).Date())
	for {
		y, m, d := first.Date()
		switch u.unit {
		case day:
			d++
		case week:
			d += 7
		case month:
			m++
		case year:
			y++
		}
		next := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		if end = u.modelShows(next); end > at {
			return u.modelShows(first), end
		}
		first = next
	}
}

// modelFirst is turns.first.
func (u turns) modelFirst(y int, m time.Month, d int) time.Time {
	first := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	is := func() bool {
		switch u.unit {
		case week:
			return first.Weekday() == time.Monday
		case month:
			return first.Day() == 1
		case year:
			return first.YearDay() == 1
		}
		return true
	}
	for !is() {
		first = first.Add(-24 * time.Hour)
	}
	return first
}

// modelShows returns the first moment at which a clock shows the day or a later one. Clocks change at
// half minutes, also in the strangest of zones since 1970.
func (u turns) modelShows(first time.Time) int64 {
	for at := first.Unix() - 30*3600; ; at += 30 {
		y, m, d := time.Unix(at, 0).In(u.zone).Date()
		if !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(first) {
			return at
		}
	}
}

// modelHour is turns.hour.
func (u turns) modelHour(at int64) (begin, end int64) {
	for begin = at; !u.modelBegins(begin); begin-- {
	}
	for end = at + 1; !u.modelBegins(end); end++ {
	}
	return begin, end
}

func (u turns) modelBegins(at int64) bool {
	now := time.Unix(at, 0).In(u.zone)
	_, was := now.Add(-time.Second).Zone()
	_, is := now.Zone()
	return now.Minute() == 0 && now.Second() == 0 || (is-was)%3600 != 0
}

// Windows around changes of a zone, written down by hand.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ unit, zone, at, begin, end string }{
		{week, "UTC", "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"},
		{week, "UTC", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		{month, "UTC", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{year, "Asia/Shanghai", "2026-12-31T15:59:59Z", "2025-12-31T16:00:00Z", "2026-12-31T16:00:00Z"},
		{day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},     // 23 h
		{day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},     // 25 h
		{day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}, // no midnight
		{day, "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"}, // midnight is left again
		{day, "America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},  // a minute of the day, then the day before
		{day, "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{day, "Africa/Cairo", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		{day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"}, // the 30th is skipped
		{day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{hour, "Asia/Kolkata", "2026-06-01T00:00:00Z", "2026-05-31T23:30:00Z", "2026-06-01T00:30:00Z"},
		{hour, "America/New_York", "2026-11-01T06:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"}, // 1 o'clock again
		{hour, "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"},
		{hour, "Australia/Lord_Howe", "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
	} {
		zone, err := time.LoadLocation(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		moment := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMicro()
		}
		u := turns{tc.unit, zone}
		if got, want := u.window(moment(tc.at)), (window{moment(tc.begin), moment(tc.end)}); got != want {
			t.Errorf("%s in %s at %s: %v to %v, want %s to %s", tc.unit, tc.zone, tc.at,
				time.UnixMicro(got.begin).UTC(), time.UnixMicro(got.end).UTC(), tc.begin, tc.end)
		}
	}
}
