// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// readN reads the number of requests of a limit. Its bound is that of the algorithm.
func readN(v value, algo limit.Algorithm) int64 {
	v.form = wholeForm{least: 0, most: cmp.Or(algo.MaxN, bounds.MaxN)}
	return v.whole()
}

// readUnit reads a unit: a name or a duration, or a unit of the calendar.
func readUnit(v value) (unit time.Duration, calendar string) {
	if !v.given() {
		return defaultUnit, ""
	}
	words := v.r.words
	if v.scalar() {
		if d, ok := words.Units[v.node.Value]; ok {
			return d, ""
		}
		if slices.Contains(words.calendars(), v.node.Value) {
			return 0, v.node.Value
		}
	}
	names := slices.Concat(words.unitNames(), words.calendars())
	const expected = "1ms to 744h in whole microseconds"
	d, err := time.ParseDuration(v.node.Value)
	switch {
	case !v.scalar() || err != nil:
		v.expected(yamltext.Join(append(names, "a duration such as 10s"), "or"), names...)
	case d < bounds.MinUnit || d > bounds.MaxUnit || d%time.Microsecond != 0:
		v.expected(expected)
	}
	return d, ""
}

// readZone reads the name of a time zone. UTC is the default.
func readZone(v value) string {
	name, ok := v.text()
	if !ok || name == "UTC" {
		return ""
	}
	if _, err := limit.FixedWindow().New(limit.Limit{Calendar: "week", Zone: name}); err != nil {
		v.expected("a time zone of the IANA database such as Europe/Berlin")
		return ""
	}
	return name
}

// checkCalendar reports what has no meaning beside a unit of the calendar or a time zone.
func checkCalendar(m mapping, r *rule.Rule) {
	unit, zone, align, l := m.get("unit"), m.get("zone"), m.get("align"), r.Limit
	if l.Calendar != "" && r.Algorithm.Uses("unit") && !r.Algorithm.Uses("zone") {
		unit.fail("unit: %s has no meaning for algo %s; it is for %s", l.Calendar, r.Algorithm.Name(), m.r.words.usersOf("zone"))
		return
	}
	if !r.Algorithm.Uses("zone") || l.Calendar == "" && !zone.given() {
		return
	}
	if zone.given() && (l.Calendar == "total" || l.Calendar == "" && l.Unit != time.Hour && l.Unit != 24*time.Hour) {
		name := "second" // the default
		if unit.given() {
			name = yamltext.Shorten(unit.node.Value)
		}
		zone.fail("zone: it has no meaning for unit %s; it is for hour, day, week, month and year", name)
	}
	if l.AlignFirst {
		align.fail("align: windows of the calendar do not begin at the first request, expected clock")
	}
}
