// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// BenchmarkTake also reports Redis' processor time for a decision. On a busy machine that says more
// than the clock.
func BenchmarkTake(b *testing.B) {
	r := redistest.Start(b)
	keys := make([]string, 1<<20)
	for i := range keys {
		keys[i] = fmt.Sprintf("actor-%d", i)
	}
	for _, a := range limit.Algorithms() {
		if a.Name() != "C" && a.Name() != "LB" {
			b.Run(a.Name(), func(b *testing.B) { benchmarkTake(b, r, a, keys, 256) })
		}
	}
	b.Run("alone", func(b *testing.B) { benchmarkTake(b, r, limit.TokenBucket(), keys, 1) })
}

func benchmarkTake(b *testing.B, r *redistest.Server, a limit.Algorithm, keys []string, callers int) {
	s, err := Open(Options{URL: r.URL(), Timeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	testproc.Eventually(b, s.Up)
	c := s.at(b, a, limit.Limit{N: 100, Unit: time.Second})
	spent := redisTime(b, r)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			ch := []limit.Charge{{Counters: c, Cost: 1}}
			for range (b.N + i) / callers {
				ch[0].Key = append(ch[0].Key[:0], keys[rand.IntN(len(keys))]...)
				if _, err := s.Take(context.Background(), 0, ch); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric((redisTime(b, r)-spent)*1e9/float64(b.N), "redis-ns/op")
}

// BenchmarkBatch is a call with 128 actors out of a million, which Redis sees one after another.
func BenchmarkBatch(b *testing.B) {
	const size = 128
	r := redistest.Start(b)
	s, err := Open(Options{URL: r.URL(), Timeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	testproc.Eventually(b, s.Up)
	for _, a := range limit.Algorithms() {
		if a.Name() == "C" || a.Name() == "LB" {
			continue
		}
		b.Run(a.Name(), func(b *testing.B) {
			ch := []limit.Charge{{Counters: s.at(b, a, limit.Limit{N: 100, Unit: time.Second}), Cost: 1}}
			spent := redisTime(b, r)
			for b.Loop() {
				call := newBatch(s.batchers[0], nil)
				call.born = time.Now()
				for range size {
					ch[0].Key = strconv.AppendInt(ch[0].Key[:0], rand.Int64N(1e6), 10)
					takeIn(call, ch)
				}
				call.call, call.known, _ = s.batchers[0].receipts.next()
				if call.send(); call.err != nil {
					b.Fatal(call.err)
				}
			}
			b.ReportMetric((redisTime(b, r)-spent)*1e9/float64(b.N*size), "redis-ns/decision")
		})
	}
}

// redisTime returns for how many seconds Redis has used a processor.
func redisTime(b *testing.B, r *redistest.Server) (seconds float64) {
	info := r.Info("cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += v
	}
	return seconds
}

// BenchmarkCostly is a request of the largest cost under a sliding log, each by another actor.
func BenchmarkCostly(b *testing.B) {
	r := redistest.Start(b)
	s, err := Open(Options{URL: r.URL(), Timeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	testproc.Eventually(b, s.Up)
	c := s.at(b, limit.SlidingLog(), limit.Limit{N: 65536, Unit: 10 * time.Second})
	spent := redisTime(b, r)
	ch := []limit.Charge{{Counters: c, Cost: 65536}}
	for i := 0; b.Loop(); i++ {
		ch[0].Key = strconv.AppendInt(ch[0].Key[:0], int64(i), 10)
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	b.ReportMetric((redisTime(b, r)-spent)*1e9/float64(b.N), "redis-ns/op")
}

// BenchmarkLongestLog is a request that a log of 65,536 moments refuses. Each has another cost, so the
// gateway must ask Redis.
func BenchmarkLongestLog(b *testing.B) {
	r := redistest.Start(b)
	s, err := Open(Options{URL: r.URL(), Timeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	testproc.Eventually(b, s.Up)
	c := s.at(b, limit.SlidingLog(), limit.Limit{N: 65536, Unit: time.Hour})
	storeLog(s, r, c, "x", time.Now().Add(-time.Minute).UnixMicro(), 65536)
	spent := redisTime(b, r)
	ch := []limit.Charge{{Counters: c, Key: []byte("x")}}
	for i := 0; b.Loop(); i++ {
		ch[0].Cost = 1 + int64(i)%65536
		if ok, err := s.Take(context.Background(), 0, ch); ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	b.ReportMetric((redisTime(b, r)-spent)*1e9/float64(b.N), "redis-ns/op")
}
