// SPDX-License-Identifier: MIT

package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// someTime is a time for trying an unused limit. Any time would do.
const someTime = 1e15

// readStatuses reads a list of different statuses.
func readStatuses(v value) (statuses []int) {
	for item := range v.list {
		before := v.r.mistakes
		status := int(item.whole())
		switch {
		case v.r.mistakes > before:
		case slices.Contains(statuses, status):
			item.fail("%s: expected each once, found %d again", item.key, status)
		default:
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// readBandwidth reads a bandwidth: a rate, or a rate and the actors that share it.
func readBandwidth(v value) *rule.Bandwidth {
	switch {
	case !v.given():
		return nil
	case v.node.Kind != yaml.MappingNode:
		return &rule.Bandwidth{Rate: readRate(v)}
	}
	v.form = bandwidthKeys
	m := v.mapping()
	b := &rule.Bandwidth{Rate: readRate(m.get("rate"))}
	if actor := m.get("actor"); actor.given() {
		b.Actor = readActor(actor)
	}
	return b
}

// readRate reads a number of bytes a second: digits, and k for thousands or m for millions.
func readRate(v value) int64 {
	if !v.given() {
		return bounds.MinBandwidth
	}
	digits, unit := v.node.Value, int64(1)
	if rest, ok := strings.CutSuffix(digits, "k"); ok {
		digits, unit = rest, 1_000
	} else if rest, ok := strings.CutSuffix(digits, "m"); ok {
		digits, unit = rest, 1_000_000
	}
	if v.scalar() && digits != "" && digits[0] != '0' && strings.Trim(digits, "0123456789") == "" && (!v.quoted() || unit > 1) {
		if n, err := strconv.ParseInt(digits, 10, 32); err == nil && n*unit >= bounds.MinBandwidth && n*unit <= bounds.MaxBandwidth {
			return n * unit
		}
	}
	v.expected("bytes a second such as 50k or 2m, 1k to 1000m")
	return bounds.MinBandwidth
}
