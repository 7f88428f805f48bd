// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"

	"github.com/diana-limiter/diana/limit"
)

// In a Cluster a script can only touch keys of one slot. So each key has one of a few tags
// in braces, by which the Cluster places it, and there is a lane for each tag. An actor's
// counters under all rules that count it alike have one tag.
//
// A request whose counters lie in several lanes goes in all of them at once, and is
// granted if every one grants its part; what the others have granted is given back. For
// that moment others can be refused for its sake, but none is admitted too much. Leaky
// buckets in several lanes do not know of each other's turns: the request waits for the
// last of them, and in the others can come close to one behind it.
const clusterLanes = 32

// tags returns what tells the keys of different lanes apart.
func (s *Store) tags() []string {
	if !s.link.cluster() {
		return []string{""}
	}
	var tags []string
	for i := range clusterLanes {
		tags = append(tags, fmt.Sprintf("{%d}", i))
	}
	return tags
}

// laneOf returns where a charge is counted. All gateways must agree. Overflow counters, which
// have one key, are spread by the names of their counters.
func (s *Store) laneOf(ch *limit.Charge) int {
	if len(s.lanes) == 1 {
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
	return int(h>>16^h) % len(s.lanes)
}

// lane returns that of the first charge.
func (s *Store) lane(charges []limit.Charge) *lane { return s.lanes[s.laneOf(&charges[0])] }

// part is the charges of a request in one lane.
type part struct {
	lane    int
	charges []limit.Charge
	index   []int // of each in the request
	place   place
}

// part takes a request apart by lanes. It returns nil if there is but one.
func (s *Store) part(charges []limit.Charge) []*part {
	if len(s.lanes) == 1 || len(charges) == 1 {
		return nil
	}
	var parts []*part
	for i, ch := range charges {
		lane := s.laneOf(&charges[i])
		var p *part
		for _, other := range parts {
			if other.lane == lane {
				p = other
			}
		}
		if p == nil {
			p = &part{lane: lane}
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

// takeParts is Take for a request in several lanes.
func (s *Store) takeParts(ctx context.Context, now int64, charges []limit.Charge, parts []*part) (allowed bool, err error) {
	for _, p := range parts {
		if p.place, err = s.lanes[p.lane].submit(now, p.charges, false, (*batch).take); err != nil {
			break
		}
	}
	allowed = err == nil
	var granted []*part
	for _, p := range parts {
		if p.place.batch == nil {
			continue // not submitted
		}
		if waitErr := p.place.wait(ctx); waitErr != nil {
			s.giveLater(p.place, p.charges)
			allowed, err = false, waitErr
			continue
		}
		ok, partErr := s.settle(p.place, now, p.charges)
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
		s.turns.join(charges)
	}
	return allowed, err
}
