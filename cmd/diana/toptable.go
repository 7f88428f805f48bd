// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/live"
	"github.com/diana-limiter/diana/internal/plan"
)

// topTable returns the table. Actors and rules are shown without control characters, because clients choose them.
// At most a third of height lines are for actors, if height is not 0.
func topTable(s *live.Snapshot, height int) string {
	var b strings.Builder
	last := func(list []int64) (n int64) {
		if len(list) > 0 {
			n = list[len(list)-1]
		}
		return n
	}
	state := "ok"
	if s.Gateway.Degraded {
		state = "degraded"
	}
	fmt.Fprintf(&b, "%s  %s  %s, version %s  gateways %d  actors %d of %d\n", s.At.Local().Format(time.TimeOnly), state,
		command.Legible(s.Gateway.Source), command.Legible(s.Gateway.ConfigVersion), s.Gateway.Gateways, s.Gateway.Keys, s.Gateway.MaxKeys)
	fmt.Fprintf(&b, "a second: %d allowed, %d refused, %d delayed, %d shadow\n\n",
		last(s.Total.Allowed), last(s.Total.Refused), last(s.Total.Delayed), last(s.Total.Shadow))
	var actors [][]string
	if len(s.TopRefused) > 0 {
		actors = append(actors, []string{"MOST REFUSED", "RULE", "IN TEN MINUTES", "A SECOND", "KEY"})
	}
	for i, r := range s.TopRefused {
		if height > 0 && i >= max(height/3, 1) {
			break
		}
		about := ""
		if !r.RecentExact {
			about = "~"
		}
		actors = append(actors, []string{command.Legible(plan.ActorName(r.Actor)), command.Legible(r.Rule), fmt.Sprintf("%s%d", about, r.Recent), perSecond(r.PerSecond), plan.ActorText(r.Actor)})
	}
	rules := [][]string{{"RULE", "LIMIT", "ALGO", "ALLOWED/S", "REFUSED/S", "ALLOWED", "REFUSED"}}
	budgets := slices.ContainsFunc(s.Rules, func(r live.Rule) bool { return r.Answer != "" })
	adaptive := slices.ContainsFunc(s.Rules, func(r live.Rule) bool { return r.Shed != nil })
	if adaptive {
		rules[0] = append(rules[0], "LATENCY", "SHED")
	}
	if budgets {
		rules[0] = append(rules[0], "CHARGED", "RESERVED", "FULLEST")
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		limit := fmt.Sprint(r.Limit)
		if r.UnitSeconds > 0 {
			limit += "/" + shortDuration(time.Duration(r.UnitSeconds*float64(time.Second)))
		}
		row := []string{command.Legible(r.Name), limit, r.Algorithm, perSecond(r.AllowedPerSecond),
			perSecond(r.RefusedPerSecond + r.ShadowPerSecond), fmt.Sprint(r.Allowed), fmt.Sprint(r.Refused)}
		if adaptive {
			row = append(row, latencyText(r), shedText(r))
		}
		switch {
		case r.Answer != "":
			fullest := "0 %"
			if r.SpentRatio > 0 {
				fullest = fmt.Sprintf("%.0f %% %s", r.SpentRatio*100, command.Legible(plan.ActorName(r.SpentBy)))
			}
			row = append(row, fmt.Sprint(r.Cost), fmt.Sprint(r.Reserved), fullest)
		case budgets:
			row = append(row, "", "", "")
		}
		rules = append(rules, row)
	}
	return b.String() + command.Columns(actors, 2, 3) + "\n" + command.Columns(rules, 3, len(rules[0])-1)
}

// latencyText returns the latency that the unloaded upstream of an adaptive rule has.
func latencyText(r *live.Rule) string {
	switch {
	case r.Shed == nil:
		return ""
	case r.Baseline == 0:
		return "-"
	}
	return time.Duration(r.Baseline * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// shedText returns what an adaptive rule has refused, in shadow mode too, by priority.
func shedText(r *live.Rule) string {
	var shed []string
	for _, priority := range slices.Sorted(maps.Keys(r.Shed)) {
		shed = append(shed, strings.TrimSpace(fmt.Sprintf("%s %d", command.Legible(priority), r.Shed[priority])))
	}
	return strings.Join(shed, ", ")
}

// shortDuration returns 1m for what time.Duration writes as 1m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, end := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, end) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func perSecond(n float64) string { return fmt.Sprintf("%.1f", n) }

// fitted cuts a text to the size of a terminal.
func fitted(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[:min(len(lines), max(height-1, 1))]
	for i, line := range lines {
		lines[i] = command.Clipped(line, width)
	}
	return strings.Join(lines, "\n") + "\n"
}
