// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
)

// exactnessTable has a row for each system and a column for each phase. A cell has the worst round.
func exactnessTable(r *measure.Report) string {
	phases := []string{coldPhase, steadyPhase, reloadPhase, flushPhase, killPhase, pausePhase}
	head := []string{"Exactness", "promise", "a new key", "steadily", "three reloads", "FLUSHALL after 700", "Redis dies and returns empty", "Redis hangs"}
	var lines [][]string
	var missing []string
	for _, s := range exactSystems() {
		if r.Find(coldPhase, s.name) == nil {
			missing = append(missing, s.name)
			continue
		}
		cells := []string{s.name, s.promise.text}
		for _, phase := range phases {
			cells = append(cells, exactCell(r.Find(phase, s.name)))
		}
		lines = append(lines, cells)
	}
	if lines == nil {
		return "**Exactness**: the run compared no system with its promise.\n\n"
	}
	text := page.Table(head, lines) + fmt.Sprintf("\n- The latency of answers hides at most %.0f further requests in a cell.\n", hidden(r))
	if missing != nil {
		text += "- Not measured, because the program was missing or could not be built: " + strings.Join(missing, ", ") + ".\n"
	}
	return text
}

// exactCell tells how a system kept its promise in a phase, and how it answered during an outage.
func exactCell(m *measure.Row) string {
	if m == nil {
		return "-"
	}
	worst := func(f measure.Figure) float64 {
		if s := m.Series(f); s != nil {
			return slices.Max(s.Rounds)
		}
		return 0
	}
	var parts []string
	add := func(n float64, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(worst(beyond), "**+%.0f**")
	add(worst(short), "**-%.0f**")
	if parts == nil {
		parts = append(parts, "0")
	}
	add(worst(alone), "%.0f without Redis")
	if m.Series(meanwhile[answerAllowed]) == nil {
		add(worst(failures)+worst(unanswered), "%.0f errors")
		return strings.Join(parts, ", ")
	}
	for i, what := range []string{"refused", "errors", "unanswered"} {
		if n := worst(meanwhile[i+1]); n < 10_000 {
			add(n, "%.0f "+what)
		} else {
			add(n/1000, "%.0f k "+what)
		}
	}
	return strings.Join(parts, ", ")
}

// hidden returns the largest number of requests beyond a promise that the driver cannot exclude, apart
// from those that it is certain of.
func hidden(r *measure.Report) (most float64) {
	for _, m := range r.Rows {
		if s := m.Series(mostBeyond); s != nil {
			for i, v := range s.Rounds {
				most = max(most, v-m.Series(beyond).Rounds[i])
			}
		}
	}
	return most
}
