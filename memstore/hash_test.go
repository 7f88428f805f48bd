// SPDX-License-Identifier: MIT

package memstore

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"testing"
	"time"
)

// Two keys of any length that differ in one bit, or in length, have hashes that differ in about half of the bits,
// also in those that choose a shard.
func TestHashSpreads(t *testing.T) {
	t.Parallel()
	s := newSeed()
	flipped, pairs := 0, 0
	for n := range 100 {
		key := make([]byte, n)
		h := s.hash(key)
		if h == s.hash(make([]byte, n+1)) {
			t.Errorf("%d and %d bytes of 0 have one hash", n, n+1)
		}
		for bit := range 8 * n {
			key[bit/8] ^= 1 << (bit % 8)
			d := bits.OnesCount64(h ^ s.hash(key))
			if d < 8 || d > 56 {
				t.Errorf("bit %d of %d bytes changes %d bits", bit, n, d)
			}
			flipped, pairs = flipped+d, pairs+1
			key[bit/8] ^= 1 << (bit % 8)
		}
	}
	if mean := float64(flipped) / float64(pairs); mean < 31.5 || mean > 32.5 {
		t.Errorf("a bit changes %.2f bits, want 32", mean)
	}
	byShard := make([]int, 256)
	for i := range 256_000 {
		byShard[s.hash(fmt.Appendf(nil, "ip=10.%d.%d.%d", i>>16, i>>8&255, i&255))&255]++
	}
	if least, most := slices.Min(byShard), slices.Max(byShard); least < 800 || most > 1200 {
		t.Errorf("shards get %d to %d of 1000 actors", least, most)
	}
	if other := newSeed(); other.hash(nil) == s.hash(nil) {
		t.Error("two seeds agree")
	}
	again := seedOf(s.append(nil))
	if again != s {
		t.Error("a seed changes when it is passed on")
	}
}

// BenchmarkHash compares the hash with that of package maphash by slices in turns.
func BenchmarkHash(b *testing.B) {
	s, std := newSeed(), maphash.MakeSeed()
	for _, n := range []int{0, 4, 12, 20, 40, 80, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			key := make([]byte, n)
			least := [2]time.Duration{time.Hour, time.Hour} // of a slice, because other programs disturb some
			var sum uint64
			for i := 0; i < b.N; i += 2000 {
				begin := time.Now()
				for range 1000 {
					sum += s.hash(key)
				}
				mid := time.Now()
				for range 1000 {
					sum += maphash.Bytes(std, key)
				}
				least[0], least[1] = min(least[0], mid.Sub(begin)), min(least[1], time.Since(mid))
			}
			if sum == 0 {
				b.Error("no hash")
			}
			b.ReportMetric(float64(least[0])/1000, "ns")
			b.ReportMetric(float64(least[0])/float64(least[1]), "own/maphash")
		})
	}
}
