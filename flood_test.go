// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
)

// For a minute 100,000 invented devices a second use a store of 100,000. Memory stays bounded, and an
// actor that was over its limit before still is.
func TestFloodKeepsMemoryAndLimits(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("six million requests")
	}
	for _, algo := range []string{"TB", "SW"} {
		t.Run(algo, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, `
max_keys: 100000
limits:
  - url: /
    rules:
      - {name: second, actor: device, unit: second, rpu: 10, algo: `+algo+`}
      - {name: hour, actor: device, unit: hour, rpu: 100, algo: `+algo+`}
`)
				for used := 0; used < 100; { // until the hour's rule is the one that refuses
					used += count(t, l, 10, device("/", "attacker"))
					time.Sleep(time.Second)
				}
				before := heap()
				devices := map[string]string{"device": ""}
				id, next, most := make([]byte, 0, 20), 0, 0
				for range 60 * 100 {
					for range 1000 {
						next++
						id = strconv.AppendInt(append(id[:0], 'd'), int64(next), 10)
						devices["device"] = string(id)
						d, err := l.Take(context.Background(), diana.Request{Path: "/", Actors: devices})
						if err != nil {
							t.Fatal(err)
						}
						d.Done()
					}
					most = max(most, l.Status().Keys)
					time.Sleep(10 * time.Millisecond)
				}
				grown := float64(int64(heap()-before)) / 1e6
				t.Logf("%d devices: at most %d keys, %d evicted, the heap grew by %.1f MB", next, most, l.Status().Evictions, grown)
				if most > 100_000+2 {
					t.Errorf("%d keys, want at most 100,000 and an overflow for each rule", most)
				}
				if grown > 10 {
					t.Errorf("the heap grew by %.1f MB, want at most 10", grown)
				}
				if got := count(t, l, 100, device("/", "attacker")); got > 2 {
					t.Errorf("%d requests of an actor over its limit were allowed after the flood", got)
				}
			})
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
