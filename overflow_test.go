// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// The status says how many requests the overflow counter of a rule has evaluated, and the log warns once
// a minute. A reload changes neither. Actors of another rule still have their room.
func TestOverflowIsReported(t *testing.T) {
	t.Parallel()
	const limits = `
max_keys: %d
limits:
- {url: /a, rules: [{name: a, actor: device, unit: day, rpu: 1, algo: W, align: first}]}
- {url: /b, rules: [{name: b, actor: device, unit: day, rpu: 1, algo: W, align: first}]}
- {url: /shadow, rules: [{name: shadow, actor: device, unit: day, rpu: 1, algo: W, align: first, mode: shadow}]}
`
	log, now := &journal{}, time.Now()
	o := diana.Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { return now }}
	f := newFolder(t)
	l := open(t, o, f.write("diana.yaml", fmt.Sprintf(limits, 24)))
	flood := func(path string, from, to int) {
		for i := from; i < to; i++ {
			ask(t, l, device(path, fmt.Sprint(i)))
		}
	}
	check := func(when string, rule int, overflow int64, warnings int) {
		t.Helper()
		s := l.Status().Rules[rule]
		if s.Overflow != overflow {
			t.Errorf("%s: overflow of %s is %d, want %d", when, s.Name, s.Overflow, overflow)
		}
		said := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "share one counter") && strings.Contains(line, "rule="+s.Name+" max_keys=24") {
				said++
			}
		}
		if said != warnings {
			t.Errorf("%s: %d warnings of %s, want %d:\n%s", when, said, s.Name, warnings, log)
		}
	}
	flood("/a", 0, 20) // 24 without the two rooms of others
	check("full", 0, 0, 0)
	flood("/a", 20, 120) // one is allowed, and 99 are refused
	check("flooded", 0, 100, 1)
	flood("/b", 0, 2)
	check("in its room", 1, 0, 0)
	flood("/b", 2, 5)
	check("beyond its room", 1, 3, 1)
	flood("/shadow", 0, 5)
	check("shadow", 2, 3, 1)

	now = now.Add(59 * time.Second)
	f.write("diana.yaml", fmt.Sprintf(limits, 23))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	f.write("diana.yaml", fmt.Sprintf(limits, 24))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	flood("/a", 120, 130)
	check("reloaded", 0, 110, 1)
	now = now.Add(time.Second)
	flood("/a", 130, 140)
	check("a minute later", 0, 120, 2)
}
