// SPDX-License-Identifier: MIT

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// In a Cluster the overflow counters of many rules use many batchers, and every gateway uses the same
// batcher for a rule.
func TestOverflowBatchers(t *testing.T) {
	t.Parallel()
	var batchers [2][]int
	used := map[int]bool{}
	for i := range batchers {
		s, err := Open(Options{Addresses: []string{"127.0.0.1:1"}}) // no server listens
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for rule := range 100 {
			m, err := limit.TokenBucket().New(limit.Limit{N: 1, Unit: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Counters(fmt.Sprint("rule ", rule), m)
			if err != nil {
				t.Fatal(err)
			}
			batcher := s.batchers.indexOf(&limit.Charge{Counters: c, Key: []byte(limit.Overflow)})
			batchers[i], used[batcher] = append(batchers[i], batcher), true
		}
	}
	if fmt.Sprint(batchers[0]) != fmt.Sprint(batchers[1]) {
		t.Error("two gateways disagree")
	}
	if len(used) < usualTags/2 {
		t.Errorf("100 rules have their overflow counters in %d of %d batchers", len(used), usualTags)
	}
}
