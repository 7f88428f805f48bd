// SPDX-License-Identifier: MIT

package main

import (
	"math/bits"
	"time"
)

// histogram counts durations. The width of a bucket is at most 1/32 of its durations, so a
// quantile is at most 3 % off. A histogram is not safe for concurrent use.
type histogram struct {
	n       int64
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

func (h *histogram) add(d time.Duration) {
	h.n++
	h.longest = max(h.longest, d)
	h.buckets[bucketOf(d)]++
}

func (h *histogram) merge(other *histogram) {
	h.n += other.n
	h.longest = max(h.longest, other.longest)
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// quantile returns the duration that the share q of all durations does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.n))
	for i, n := range h.buckets {
		if rank -= int64(n); rank < 0 {
			return min(upper(i), h.longest)
		}
	}
	return h.longest
}
