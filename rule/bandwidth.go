// SPDX-License-Identifier: MIT

package rule

import "strconv"

// Bandwidth limits the speed of responses.
type Bandwidth struct {
	Rate  int64   // in bytes a second, 1,000 to 1,000,000,000
	Actor []Actor // whose responses share the rate; if empty, each response has the whole rate
}

// Shared reports whether the responses to one actor share the bandwidth.
func (b *Bandwidth) Shared() bool { return len(b.Actor) > 0 }

// String returns the bandwidth in the form "50k", or "50k by device" if it is shared.
func (b *Bandwidth) String() string {
	text := strconv.FormatInt(b.Rate, 10)
	switch {
	case b.Rate%1_000_000 == 0:
		text = strconv.FormatInt(b.Rate/1_000_000, 10) + "m"
	case b.Rate%1_000 == 0:
		text = strconv.FormatInt(b.Rate/1_000, 10) + "k"
	}
	if b.Shared() {
		text += " by " + joinActors(b.Actor)
	}
	return text
}
