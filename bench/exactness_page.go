// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strings"
)

// exactnessTable has a row for each system and a column for each phase. A cell has the worst round.
func exactnessTable(r *report) string {
	phases := []string{coldPhase, steadyPhase, reloadPhase, killPhase, pausePhase}
	head := []string{"Exactness", "promise", "a new key", "steadily", "three reloads", "Redis dies and returns empty", "Redis hangs"}
	var lines [][]string
	var missing []string
	for _, s := range exactSystems() {
		if r.find(coldPhase, s.name) == nil {
			missing = append(missing, s.name)
			continue
		}
		cells := []string{s.name, s.promise.text}
		for _, phase := range phases {
			cells = append(cells, exactCell(r.find(phase, s.name)))
		}
		lines = append(lines, cells)
	}
	if lines == nil {
		return "**Exactness**: the run compared no system with its promise.\n\n"
	}
	text := table(head, lines) + fmt.Sprintf("\n- The latency of answers hides at most %.0f further requests in a cell.\n", hidden(r))
	if missing != nil {
		text += "- Not measured, because the program was missing or could not be built: " + strings.Join(missing, ", ") + ".\n"
	}
	return text
}

// exactCell tells how a system kept its promise in a phase, and how it answered during an outage.
func exactCell(m *row) string {
	if m == nil {
		return "-"
	}
	worst := func(f figure) float64 {
		if s := m.series(f); s != nil {
			return slices.Max(s.Rounds)
		}
		return 0
	}
	var parts []string
	if n := worst(beyond); n > 0 {
		parts = append(parts, fmt.Sprintf("**+%.0f**", n))
	}
	if n := worst(short); n > 0 {
		parts = append(parts, fmt.Sprintf("**-%.0f**", n))
	}
	if parts == nil {
		parts = append(parts, "0")
	}
	if n := worst(alone); n > 0 {
		parts = append(parts, fmt.Sprintf("%.0f without Redis", n))
	}
	if m.series(meanwhile[answerAllowed]) == nil {
		if n := worst(failures) + worst(unanswered); n > 0 {
			parts = append(parts, fmt.Sprintf("%.0f errors", n))
		}
		return strings.Join(parts, ", ")
	}
	for i, what := range []string{"", "refused", "errors", "unanswered"} {
		if n := worst(meanwhile[i]); n > 0 && what != "" {
			parts = append(parts, fmt.Sprintf("%s %s", thousands(n), what))
		}
	}
	return strings.Join(parts, ", ")
}

// thousands abbreviates large counts.
func thousands(n float64) string {
	if n >= 10_000 {
		return fmt.Sprintf("%.0f k", n/1000)
	}
	return fmt.Sprintf("%.0f", n)
}

// hidden returns the largest number of requests beyond a promise that the driver cannot exclude, apart
// from those that it is certain of.
func hidden(r *report) (most float64) {
	for _, m := range r.Rows {
		if s := m.series(mostBeyond); s != nil {
			for i, v := range s.Rounds {
				most = max(most, v-m.series(beyond).Rounds[i])
			}
		}
	}
	return most
}
