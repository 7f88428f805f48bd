// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"

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
const clusterTags = 32

// tags returns the tags of the batchers.
func (s *Store) tags() []string {
	if !s.link.cluster() {
		return []string{""}
	}
	var tags []string
	for i := range clusterTags {
		tags = append(tags, fmt.Sprintf("{%d}", i))
	}
	return tags
}

// batcherOf returns the index of the batcher of a charge. All gateways must agree. Overflow counters
// have one key, so the names of their counters separate them.
func (s *Store) batcherOf(ch *limit.Charge) int {
	if len(s.batchers) == 1 {
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
	return int(h>>16^h) % len(s.batchers)
}

// batcher returns the batcher of the first charge.
func (s *Store) batcher(charges []limit.Charge) *batcher { return s.batchers[s.batcherOf(&charges[0])] }

// part is the charges of a request with one batcher.
type part struct {
	batcher int
	charges []limit.Charge
	index   []int // of each in the request
	entry   entry
}

// part divides a request by batchers. It returns nil if there is only one.
func (s *Store) part(charges []limit.Charge) []*part {
	if len(s.batchers) == 1 || len(charges) == 1 {
		return nil
	}
	var parts []*part
	for i, ch := range charges {
		batcher := s.batcherOf(&charges[i])
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

// merge copies the charges of a part to those of the request.
func (p *part) merge(charges []limit.Charge) {
	for i, of := range p.index {
		charges[of] = p.charges[i]
	}
}

// takeParts is Take for a request with several batchers.
func (s *Store) takeParts(ctx context.Context, now int64, charges []limit.Charge, parts []*part) (allowed bool, err error) {
	for _, p := range parts {
		if p.entry, err = s.batchers[p.batcher].submit(now, p.charges, false, (*batch).take); err != nil {
			break
		}
	}
	allowed = err == nil
	var granted []*part
	for _, p := range parts {
		if p.entry.batch == nil {
			continue // not submitted
		}
		if waitErr := p.entry.wait(ctx); waitErr != nil {
			s.refundLater(p.entry, p.charges)
			allowed, err = false, waitErr
			continue
		}
		ok, partErr := s.settle(p.entry, now, p.charges)
		if partErr != nil && err == nil {
			err = partErr
		}
		allowed = allowed && ok
		if ok {
			granted = append(granted, p)
		}
	}
	if !allowed {
		for _, p := range granted {
			s.Refund(p.charges)
			for i := range p.charges {
				if o := &p.charges[i].Outcome; o.Allowed {
					o.Remaining += p.charges[i].Cost
				}
			}
		}
	}
	for _, p := range parts {
		p.merge(charges)
	}
	if allowed {
		s.schedule.join(charges)
	}
	return allowed, err
}
