// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// BenchmarkInsert takes for an actor that is not remembered: with room for it, in place of an
// expired record, and in a store that is full of limited actors.
func BenchmarkInsert(b *testing.B) {
	for _, tc := range []struct {
		name    string
		maxKeys int
		unit    time.Duration
	}{
		{"room", 1 << 26, time.Hour},
		{"expired", 1 << 17, time.Millisecond},
		{"full", 1 << 17, time.Hour},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := New(Options{MaxKeys: tc.maxKeys})
			c := open(b, s, limit.TokenBucket(), limit.Limit{N: 100, Unit: tc.unit})
			others := make([]any, 9)
			for i := range others {
				others[i] = open(b, s, limit.TokenBucket(), limit.Limit{N: int64(i + 1), Unit: time.Hour})
			}
			var start uint64
			if tc.name != "room" { // the other rules keep their rooms empty
				start = uint64(2 * tc.maxKeys)
				for i := range start {
					take(b, s, c, s.Now(), string(binary.LittleEndian.AppendUint64(nil, i)))
				}
			}
			var handed atomic.Uint64 // many numbers at a time, so that the threads do not share a cache line
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				charges := []limit.Charge{{Counters: c, Cost: 1, Key: make([]byte, 8)}}
				i, end := uint64(0), uint64(0)
				for pb.Next() {
					if i == end {
						end = start + handed.Add(1<<12)
						i = end - 1<<12
					}
					binary.LittleEndian.PutUint64(charges[0].Key, i)
					i++
					_, _ = s.Take(context.Background(), s.Now(), charges)
				}
			})
		})
	}
}
