// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
)

// target is what Diana must reach.
type target struct {
	id, text string

	// judge returns the figure that decides, as text too. ok tells whether the run has
	// measured what it takes.
	judge func(r *report) (text string, met, ok bool)
}

// verdict is what became of a target.
type verdict struct {
	ID     string `json:"id"`
	Text   string `json:"target"`
	Figure string `json:"figure"`
	Met    bool   `json:"met"`
}

// judge returns the verdicts on what the run has measured.
func judge(r *report) (verdicts []verdict) {
	for _, t := range slices.Concat(localTargets(), middlewareTargets(), globalTargets(), gatewayTargets(), bandwidthTargets(), worstTargets()) {
		if text, met, ok := t.judge(r); ok {
			verdicts = append(verdicts, verdict{t.id, t.text, text, met})
		}
	}
	return verdicts
}

// bounds of a ratio
func atLeast(bound float64) func(float64) bool { return func(v float64) bool { return v >= bound } }
func atMost(bound float64) func(float64) bool  { return func(v float64) bool { return v <= bound } }

// compare judges by one figure of two rows: the first divided by the second.
func compare(workload, figure, ours, theirs string, met func(float64) bool) func(*report) (string, bool, bool) {
	return func(r *report) (string, bool, bool) {
		v := ratio(r.find(workload, ours), r.find(workload, theirs), figure)
		text := plainText(v)
		if v < 0.1 { // of which plainText leaves one digit or none
			text = fmt.Sprintf("%.2g", v)
		}
		return text + " x", met(v), v != 0
	}
}
