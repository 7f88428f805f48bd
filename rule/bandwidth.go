// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Bounds of Bandwidth.Rate.
const (
	MinBandwidth = 1_000
	MaxBandwidth = 1_000_000_000
)

// Bandwidth is how fast answers may be.
type Bandwidth struct {
	Rate  int64   // bytes a second, MinBandwidth to MaxBandwidth
	Actor []Actor // whose answers share it; empty: each answer has it for itself

	// The rest is set by Compile.

	Index    int     // in Set.Bandwidths
	URL      Pattern // that it stands under
	Counters string  // names what is counted: equal in two Sets if the counts mean the same

	who []chain
}

// String returns the bandwidth as in "50k", or "50k by device" if it is shared.
func (b *Bandwidth) String() string {
	text := strconv.FormatInt(b.Rate, 10)
	switch {
	case b.Rate%1_000_000 == 0:
		text = strconv.FormatInt(b.Rate/1_000_000, 10) + "m"
	case b.Rate%1_000 == 0:
		text = strconv.FormatInt(b.Rate/1_000, 10) + "k"
	}
	if b.Shared() {
		text += " by " + actorText(b.Actor)
	}
	return text
}

// Shared reports whether the answers of an actor share the bandwidth.
func (b *Bandwidth) Shared() bool { return len(b.Actor) > 0 }

// AppendKey is like that of a Rule.
func (b *Bandwidth) AppendKey(key []byte, req *Request, ip netip.Addr) []byte {
	key, _ = appendKey(key, b.who, req, ip)
	return key
}

// bindBandwidth gives a bandwidth its counters' name and its actors' sources.
func (s *Set) bindBandwidth(b *Bandwidth, v Vocabulary) (err error) {
	if b.Rate < MinBandwidth || b.Rate > MaxBandwidth {
		return fmt.Errorf("bandwidth of %q is %d, expected %d to %d", b.URL, b.Rate, MinBandwidth, MaxBandwidth)
	}
	b.Index = len(s.Bandwidths)
	b.Counters = fmt.Sprintf("bandwidth %q %q", actorTexts(b.Actor), b.URL)
	if b.who, err = s.identity.chains(v, b.Actor); err != nil {
		return fmt.Errorf("bandwidth of %q: %w", b.URL, err)
	}
	s.Bandwidths = append(s.Bandwidths, b)
	return nil
}

// BandwidthExplanation tells how one bandwidth slows the answer to a request.
type BandwidthExplanation struct {
	Bandwidth *Bandwidth
	Key       string // of who shares it; empty for All, and if it is not shared
}

// ExplainBandwidths returns which bandwidths the answer to the request would have. All of
// them hold. There are none for a path that Find refuses.
func (s *Set) ExplainBandwidths(req *Request) (explained []BandwidthExplanation) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil
	}
	for _, b := range m.Bandwidths {
		explained = append(explained, BandwidthExplanation{b, string(b.AppendKey(nil, req, s.ClientIP(req)))})
	}
	return explained
}
