// SPDX-License-Identifier: MIT

package measure

import (
	"math/bits"
	"time"
)

// Histogram counts durations. The width of a bucket is at most 1/32 of its durations, so a
// quantile is at most 3 % off. A histogram is not safe for concurrent use.
type Histogram struct {
	N       int64
	longest time.Duration
	buckets [40 << fine]uint32
}

const fine = 5 // each doubling has 2 to this power buckets

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<fine {
		return int(v)
	}
	double := bits.Len64(v) - 1 - fine
	return min((double+1)<<fine+int(v>>double)-1<<fine, 40<<fine-1)
}

// upper returns the end of a bucket.
func upper(bucket int) time.Duration {
	if bucket < 1<<fine {
		return time.Duration(bucket)
	}
	double := bucket>>fine - 1
	return time.Duration((bucket&(1<<fine-1)+1<<fine+1)<<double) - 1
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.N++
	h.longest = max(h.longest, d)
	h.buckets[bucketOf(d)]++
}

func (h *Histogram) merge(other *Histogram) {
	h.N += other.N
	h.longest = max(h.longest, other.longest)
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// Quantile returns the duration that the share q of all durations does not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(h.N))
	for i, n := range h.buckets {
		if rank -= int64(n); rank < 0 {
			return min(upper(i), h.longest)
		}
	}
	return h.longest
}
