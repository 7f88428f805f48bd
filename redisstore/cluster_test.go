// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

func openCluster(t *testing.T, c *redistest.Cluster) *Store {
	t.Helper()
	return openBy(t, Options{Addresses: c.Addrs()})
}

// A Cluster passes the same suite as a single server. Only for a moment can a refused request cause
// the refusal of others.
func TestClusterConformance(t *testing.T) {
	t.Parallel()
	testConformance(t, Options{Addresses: redistest.StartCluster(t, 3).Addrs()})
}

// A gateway with another number of tags notices it, because it does not count with the others.
func TestClusterTags(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, tags := range []int{64, 0, 64} {
		others := make(chan int, 8)
		s := openBy(t, Options{Addresses: c.Addrs(), Tags: tags, Changed: func(h Health) { others <- h.OtherTags }})
		want := 0
		if tags == 0 {
			want = 64
		}
		if got := <-others; got != want {
			t.Errorf("with %d tags the others have %d, want %d", len(s.batchers), got, want)
		}
	}
}

// Each master has some of the keys. A request that one master refuses takes nothing from the others.
func TestClusterParts(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	all := []*Store{openCluster(t, c), openCluster(t, c), openCluster(t, c)}
	hour := limit.Limit{N: 100_000, Unit: time.Hour}
	var granted [16]atomic.Int64
	var wg sync.WaitGroup
	for _, s := range all {
		wide := s.at(t, limit.SlidingWindow(), hour)
		narrow := s.at(t, limit.SlidingLog(), limit.Limit{N: 10, Unit: time.Hour})
		for i := range 64 {
			wg.Go(func() {
				for j := range 50 {
					n := (i + j) % len(granted)
					ok, err := s.Take(context.Background(), 0, []limit.Charge{
						{Counters: wide, Cost: 1}, {Counters: narrow, Key: fmt.Appendf(nil, "actor%d", n), Cost: 1},
					})
					if err != nil {
						t.Error(err)
					}
					if ok {
						granted[n].Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range granted {
		if n := granted[i].Load(); n != 10 {
			t.Errorf("actor %d: %d were granted, want 10", i, n)
		}
	}
	s := all[0]
	testproc.Eventually(t, func() bool { // refunds go with the next call
		ch := []limit.Charge{{Counters: s.at(t, limit.SlidingWindow(), hour), Cost: 1, Shadow: true}}
		if _, err := s.Take(context.Background(), 0, ch); err != nil {
			t.Fatal(err)
		}
		defer s.Refund(ch)
		return ch[0].Outcome.Remaining == hour.N-10*int64(len(granted))-1
	})
	for _, node := range c.Nodes[:3] {
		if n := node.Must("DBSIZE").(int64); n == 0 {
			t.Errorf("%s has no keys", node.Addr())
		}
	}
}

// A slow Cluster is used as a slow single server is. Its batchers are asked at once, because one after
// another would take more than half of the time.
func TestClusterFar(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{
		Addresses: redistest.StartCluster(t, 3).Addrs(), Timeout: 600 * time.Millisecond,
		Observed: func(time.Duration) { time.Sleep(12 * time.Millisecond) }, // the round trip
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
}

// When a master is lost its replica takes over, and global limits continue.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill, "frozen": (*redistest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3)
			s := openCluster(t, c)
			counters := s.at(t, limit.TokenBucket(), limit.Limit{N: 1_000_000, Unit: time.Hour})
			take := func(key string) error {
				_, err := s.Take(context.Background(), 0, []limit.Charge{{Counters: counters, Key: []byte(key), Cost: 1}})
				return err
			}
			everyone := func() bool {
				for i := range 100 {
					if take(fmt.Sprint(i)) != nil {
						return false
					}
				}
				return true
			}
			if !everyone() {
				t.Fatal("requests fail before anything has happened")
			}
			harm(c.Nodes[0])
			c.WaitFailover(c.Nodes[0])
			testproc.Eventually(t, everyone)
		})
	}
}

// A hash slot moves to another master while it is in use.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	c0 := s.at(t, limit.FixedWindow(), limit.Limit{N: 10, Unit: time.Hour, AlignFirst: true})
	take := func() bool {
		ok, err := s.Take(context.Background(), 0, []limit.Charge{{Counters: c0, Key: []byte("x"), Cost: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for range 4 {
		take()
	}
	key := s.keys.counter(s.batchers.batcher(&limit.Charge{Counters: c0, Key: []byte("x")}).tag, hashOf(&limit.Charge{Counters: c0, Key: []byte("x")}))
	c.Move(key)
	for range 6 {
		if !take() {
			t.Error("refused before the limit")
		}
	}
	if take() {
		t.Error("allowed over the limit")
	}
}
