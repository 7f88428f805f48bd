// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

func BenchmarkTake(b *testing.B) {
	r := redistest.Start(b)
	for _, keys := range []int{1, 1 << 20} {
		for _, callers := range []int{1, 256} {
			b.Run(fmt.Sprintf("keys=%d,callers=%d", keys, callers), func(b *testing.B) {
				s, err := Open(Options{URL: r.URL(), Timeout: 5 * time.Second})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				eventually(b, s.Up)
				m, _ := limit.TokenBucket().New(limit.Limit{N: 100, Unit: time.Second})
				c, _ := s.Counters("x", m)
				b.SetParallelism(callers / 2)
				if callers == 1 {
					ch := []limit.Charge{{Counters: c, Cost: 1}}
					for b.Loop() {
						ch[0].Key = fmt.Append(ch[0].Key[:0], rand.IntN(keys))
						_, _ = s.Take(context.Background(), 0, ch)
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					ch := []limit.Charge{{Counters: c, Cost: 1}}
					for pb.Next() {
						ch[0].Key = fmt.Append(ch[0].Key[:0], rand.IntN(keys))
						if _, err := s.Take(context.Background(), 0, ch); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
