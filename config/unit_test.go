// SPDX-License-Identifier: MIT

package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"github.com/diana-limiter/diana/limit"
)

// Whatever the unit and the zone, a rule is rejected in its line, or has windows. The present window has
// begun and is not over, and the next one follows without a gap.
func FuzzUnitAndZone(f *testing.F) {
	for _, unit := range []string{"second", "hour", "day", "week", "month", "year", "total", "24h", "90m", "", "Month", "1e9h"} {
		for _, zone := range []string{"", "UTC", "Europe/Berlin", "Australia/Lord_Howe", "Local", "../UTC", "Europe", "a\x00b", "right/UTC"} {
			f.Add(unit, zone, int64(1_774_746_000))
		}
	}
	quote := func(text string) string {
		data, err := json.Marshal(text)
		if err != nil {
			f.Fatal(err)
		}
		return string(data)
	}
	v := words()
	f.Fuzz(func(t *testing.T, unit, zone string, at int64) {
		c, err := v.Parse("x", []byte(fmt.Sprintf("url: /\nrules: [{rpu: 1, algo: W, unit: %s, zone: %s}]", quote(unit), quote(zone))))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x:2:") {
				t.Errorf("unit %q, zone %q: %v", unit, zone, err)
			}
			return
		}
		l := c.Limits[0].Rules[0].Limit
		if _, err := limit.FixedWindow().New(l); err != nil || l.Zone != zone && zone != "UTC" {
			t.Errorf("accepted %+v: %v", l, err)
		}
		now := time.Unix((at%4e9+4e9)%4e9, 0)
		begin, end := l.Window(now)
		if l.Calendar == "" && l.Zone == "" || l.Calendar == "total" {
			if !begin.IsZero() || !end.IsZero() {
				t.Errorf("%+v has a window from %v to %v", l, begin, end)
			}
			return
		}
		next, after := l.Window(end)
		if now.Before(begin) || !now.Before(end) || !next.Equal(end) || !after.After(next) {
			t.Errorf("%+v at %v: from %v to %v, and then from %v to %v", l, now, begin, end, next, after)
		}
	})
}
