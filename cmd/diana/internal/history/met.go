// SPDX-License-Identifier: MIT

package history

import (
	"encoding/binary"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// A record carries what the request has met under its rules: two numbers each. So the oldest records say what
// the requests have used that the ring has dropped.

// met appends what the request has met.
func (e *encoder) met(d *diana.Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		n := uint64(v.Remaining+1) << 1 //nolint:gosec // at least 0, because limit.Unknown is -1
		if v.Allowed {
			n |= 1
		}
		e.text = binary.AppendUvarint(e.text, n)
		e.text = binary.AppendUvarint(e.text, uint64(max(v.Wait, 0))) //nolint:gosec // at least 0
	}
}

// appendMet appends what text, the end of a record, says of that.
func appendMet(met []weblog.Met, text []byte) []weblog.Met {
	for len(text) > 0 {
		n, size := binary.Uvarint(text)
		wait, more := binary.Uvarint(text[size:])
		text = text[size+more:]
		met = append(met, weblog.Met{Allowed: n&1 > 0, Remaining: int64(n>>1) - 1, Wait: int64(wait)}) //nolint:gosec // met wrote them
	}
	return met
}
