// SPDX-License-Identifier: MIT

package history

import "github.com/diana-limiter/diana"

// settledBy returns what the first rule whose cost has an answer was charged by, and a flag for its unit: 0 if
// the response said the cost.
func settledBy(d *diana.Decision) (cost int64, unit byte) {
	if cost, _ = d.Settled(); cost == 0 {
		return 0, 0
	}
	for i := range d.Verdicts {
		switch d.Verdicts[i].Rule.Cost.Answer {
		case "":
			continue
		case "duration":
			unit = inMilliseconds
		case "bytes":
			unit = inBytes
		}
		return cost, unit
	}
	return cost, 0
}
