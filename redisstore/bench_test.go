// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// BenchmarkLone reports what Redis' processor does for a lone decision, in microseconds: the 10th percentile of slices
// that take turns. Beside Diana without what it remembers, and by driver.lua, is a plain EVALSHA that reads and writes a
// value of the same size. Each log holds about 100 moments. Run it with -benchtime 1x.
func BenchmarkLone(b *testing.B) {
	const actors, moments = 500, 80
	plain := plainScript(`
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
return v and 1 or 0
`)
	for _, a := range limit.Algorithms() {
		b.Run(a.Name(), func(b *testing.B) {
			r := redistest.Start(b)
			var works []func(i int)
			var value []byte
			var link *link
			names := []string{"lone", "forgetful", "long", "plain"}
			for _, name := range names[:3] {
				o := Options{URL: r.URL(), Timeout: 5 * time.Second, Prefix: name}
				if name == "forgetful" {
					o.Remember = -1
				}
				s, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				testproc.Eventually(b, s.Up)
				s.long.Store(name == "long")
				c := s.at(b, a, limit.Limit{N: 1_000_000, Unit: time.Hour})
				ch := []limit.Charge{{Counters: c, Cost: 1}}
				works = append(works, func(i int) {
					ch[0].Key = strconv.AppendInt(ch[0].Key[:0], int64(i%actors), 10)
					if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
						b.Fatal(ok, err)
					}
				})
				for i := range actors {
					if a.Name() == "SL" {
						storeLog(s, r, c, strconv.Itoa(i), time.Now().Add(-time.Minute).UnixMicro(), moments)
					}
					works[len(works)-1](i)
				}
				state, _ := r.Must("GET", s.keys.counter(s.batchers[0].tag, hashOf(&ch[0]))).(string)
				value, link = []byte(state), &s.link
			}
			works = append(works, func(i int) {
				if _, err := link.run(context.Background(), plain, []string{fmt.Sprintf("plain:%022d", i%actors)}, value); err != nil {
					b.Fatal(err)
				}
			})
			costs := redisSlices(b, r, works)
			for i, name := range names {
				b.ReportMetric(costs[i], name+"-µs")
			}
			b.ReportMetric(costs[0]/costs[3], "lone/plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// redisSlices returns the microseconds of Redis' processor for a call of each work. It lets them take turns in any
// order, because a slice depends on what Redis did before.
func redisSlices(b *testing.B, r *redistest.Server, works []func(i int)) []float64 {
	const turns, calls, warm = 200, 60, 10
	taken := make([][]float64, len(works))
	for b.Loop() {
		for n := range turns {
			for _, k := range rand.Perm(len(works)) {
				for i := range warm {
					works[k](n*calls + i)
				}
				before := mainThread(b, r)
				for i := range calls {
					works[k](n*calls + i)
				}
				taken[k] = append(taken[k], float64(mainThread(b, r)-before)/1000/calls)
			}
		}
	}
	costs := make([]float64, len(works))
	for k, t := range taken {
		slices.Sort(t)
		costs[k] = t[len(t)/10]
	}
	return costs
}

// mainThread returns how long the main thread of Redis has run, in nanoseconds.
func mainThread(b *testing.B, r *redistest.Server) (ns int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", r.PID()))
	if err != nil {
		b.Skip(err)
	}
	if _, err := fmt.Sscan(string(stat), &ns); err != nil {
		b.Fatal(err)
	}
	return ns
}

// BenchmarkFleet reports what Redis' processors do for a decision of many gateways on a Cluster of three nodes, in
// microseconds, and how many calls a decision is. Diana and clients that send a plain EVALSHA each, with the clock, a
// read and a write, take turns of 300 ms at the same rate, with as many connections. Run it with -benchtime 1x.
func BenchmarkFleet(b *testing.B) {
	for _, gateways := range []int{16, 50} {
		b.Run(strconv.Itoa(gateways), func(b *testing.B) { benchmarkFleet(b, gateways) })
	}
}

func benchmarkFleet(b *testing.B, gateways int) {
	const turns, span, each, keys = 30, 300 * time.Millisecond, 100 * time.Microsecond, 1_000_000
	cluster := redistest.Options{}.StartCluster(b, 3)
	masters := cluster.Nodes[:3]
	plain := plainScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
if at > now + 1000000 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000) + 1)
return 1
`)
	var asks [2][]func(key int)
	for range gateways {
		var stores [2]*Store // the connections of the second one send the plain script, and no batcher uses them
		for i := range stores {
			s, err := Open(Options{Addresses: cluster.Addrs(), Timeout: 5 * time.Second, Prefix: []string{"diana", "plain"}[i]})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			testproc.Eventually(b, s.Up)
			stores[i] = s
		}
		c := stores[0].at(b, limit.TokenBucket(), limit.Limit{N: 100, Unit: time.Second})
		asks[0] = append(asks[0], func(key int) {
			ch := []limit.Charge{{Counters: c, Key: strconv.AppendInt(nil, int64(key), 10), Cost: 1}}
			if _, err := stores[0].Take(context.Background(), 0, ch); err != nil {
				b.Error(err)
			}
		})
		asks[1] = append(asks[1], func(key int) {
			name := []string{fmt.Sprintf("plain:{%d}%022d", key%usualTags, key)}
			if answer, err := stores[1].link.run(context.Background(), plain, name, []byte("10000")); err != nil || answer.Error() != nil {
				b.Error(err, answer.Error())
			}
		})
	}
	time.Sleep(time.Second) // the connections to all nodes
	total := func() (ns int64, calls int) {
		for _, m := range masters {
			ns += mainThread(b, m)
			calls += m.Calls()["evalsha"]
		}
		return ns, calls
	}
	var costs [2][]float64
	var decisions, calls [2]int
	for b.Loop() {
		for n := range 2 * turns {
			k := n % 2
			var done atomic.Int64
			var wg sync.WaitGroup
			before, callsBefore := total()
			end := time.Now().Add(span)
			for _, ask := range asks[k] {
				wg.Go(func() {
					for time.Now().Before(end) {
						ask(rand.IntN(keys))
						done.Add(1)
						time.Sleep(time.Duration(gateways) * 4 * each)
					}
				})
			}
			wg.Wait()
			after, callsAfter := total()
			costs[k] = append(costs[k], float64(after-before)/1000/float64(done.Load()))
			decisions[k] += int(done.Load())
			calls[k] += callsAfter - callsBefore
		}
	}
	for k, name := range []string{"diana", "plain"} {
		slices.Sort(costs[k])
		b.ReportMetric(costs[k][len(costs[k])/10], name+"-µs")
		b.ReportMetric(float64(calls[k])/float64(decisions[k]), name+"-calls")
		b.ReportMetric(float64(decisions[k])/(turns*span.Seconds()), name+"/s")
	}
	b.ReportMetric(0, "ns/op")
}
