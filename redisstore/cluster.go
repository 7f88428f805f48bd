// SPDX-License-Identifier: MIT

package redisstore

import (
	"fmt"
	"slices"

	"github.com/diana-limiter/diana/limit"
)

// In a Cluster a script can only use keys of one hash slot. So each key has one of a few tags in
// braces, by which the Cluster assigns it, and each tag has a batcher. An actor's counters under
// all rules that count it alike have one tag.
//
// If the counters of a request have several tags, all their batchers get a part of it at once. The
// request is allowed if every part is; otherwise the parts that were allowed are refunded. For
// that moment other requests can be refused because of it, but none is wrongly allowed. Leaky
// buckets with several tags do not know each other's scheduled times. The request waits for the
// last of them, and in the other buckets it can be close to the next request.
//
// The tags of an actor depend on how many there are. So all gateways must have the same number: it belongs to the fleet,
// and the gateway that sees another number in a heartbeat reports it.
const usualTags = 32

// tags returns the tags of n batchers.
func tags(n int) []string {
	if n == 1 {
		return []string{""}
	}
	var tags []string
	for i := range n {
		tags = append(tags, fmt.Sprintf("{%d}", i))
	}
	return tags
}

// batchers are the batchers of a Store, one for each tag.
type batchers []*batcher

// batcher returns the batcher batcher a charge.
func (all batchers) batcher(ch *limit.Charge) *batcher { return all[all.indexOf(ch)] }

// indexOf returns the index of the batcher of a charge. All gateways must agree. Overflow counters
// have one key, so the names of their counters separate them.
func (all batchers) indexOf(ch *limit.Charge) int {
	if len(all) == 1 {
		return 0
	}
	key := ch.Key
	if string(key) == limit.Overflow {
		key = ch.Counters.(*counters).sum[:]
	}
	h := uint32(2166136261) // FNV-1a
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return int(h>>16^h) % len(all)
}

// divide divides a request by batchers. It returns nil if there is only one.
func (all batchers) divide(charges []limit.Charge) []*part {
	if len(all) == 1 || len(charges) == 1 {
		return nil
	}
	var parts []*part
	for i, ch := range charges {
		batcher := all.indexOf(&charges[i])
		var p *part
		for _, other := range parts {
			if other.batcher == batcher {
				p = other
			}
		}
		if p == nil {
			p = &part{batcher: batcher}
			parts = append(parts, p)
		}
		p.charges, p.index = append(p.charges, ch), append(p.index, i)
	}
	if len(parts) == 1 {
		return nil
	}
	return parts
}

// anyOpen reports whether the fate of a call is unknown that is not in flight.
func (all batchers) anyOpen() bool {
	return slices.ContainsFunc(all, func(br *batcher) bool { return br.receipts.anyOpen() })
}

// part is the charges of a request with one batcher.
type part struct {
	batcher int
	charges []limit.Charge
	index   []int // of each in the request
	entry   entry
}

// merge copies the charges of a part to those of the request.
func (p *part) merge(charges []limit.Charge) {
	for i, of := range p.index {
		charges[of] = p.charges[i]
	}
}
