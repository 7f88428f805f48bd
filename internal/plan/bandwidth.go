// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// Bandwidth is a compiled bandwidth.
type Bandwidth struct {
	*rule.Bandwidth

	Index    int          // in Set.Bandwidths
	URL      rule.Pattern // of the entry
	Counters string       // name of the counters: equal in two Sets if the counts mean the same

	who  []chain
	body *bodyNeeds // nil: none
}

// newBandwidth returns the compiled bandwidth of an entry.
func newBandwidth(v *compiler, e *rule.Entry) (*Bandwidth, error) {
	b := *e.Bandwidth
	if b.Rate < bounds.MinBandwidth || b.Rate > bounds.MaxBandwidth {
		return nil, fmt.Errorf("bandwidth of %q is %d, expected %d to %d", e.URL, b.Rate, bounds.MinBandwidth, bounds.MaxBandwidth)
	}
	who, err := v.chainsOf(b.Actor)
	if err != nil {
		return nil, fmt.Errorf("bandwidth of %q: %w", e.URL, err)
	}
	actor := b.Actor
	if len(actor) == 0 {
		actor = []rule.Actor{rule.All}
	}
	return &Bandwidth{Bandwidth: &b, URL: e.URL, Counters: fmt.Sprintf("bandwidth %q %q", actor, e.URL), who: who, body: bodyNeedsOf(who, nil)}, nil
}

// AppendKey appends the key of the actor that shares the bandwidth. It is like that of a Rule.
func (b *Bandwidth) AppendKey(key []byte, client *Client) []byte {
	key, _ = appendKey(key, b.who, client)
	return key
}
