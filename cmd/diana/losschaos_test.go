// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

var chaos = flag.Duration("chaos", 0, "how long TestLossChaos harms each Redis and its gateways")

// chaosActors is how many counters there are. In a Cluster they are in several slots.
const chaosActors = 6

// TestLossChaos compares what three gateways have allowed with what Redis has counted, after each of many faults.
//
//	go test ./cmd/diana -run TestLossChaos/Cluster -v -chaos 30m -timeout 40m
func TestLossChaos(t *testing.T) {
	if *chaos == 0 {
		t.Skip("runs with -chaos")
	}
	for _, r := range forgetfuls {
		t.Run(r.name, func(t *testing.T) { testLossChaos(t, r.start(t)) })
	}
}

func testLossChaos(t *testing.T, r *forgetful) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	way := r.way + ", timeout: 100ms"
	f := startFleet(t, []string{way, way, way}, 16, "- {url: /, rules: [{actor: query:a, algo: W, unit: day, rpu: 10000000, scope: global}]}\n")
	var allowed atomic.Int64
	ask := func(gateway, actor int) {
		if f.ask(t, gateway, fmt.Sprint("/?a=", actor)).status == 200 {
			allowed.Add(1)
		}
	}
	ready := func() {
		if r.ready != nil {
			r.ready()
		}
	}
	count := func() (n int64) {
		for _, s := range r.masters() {
			for _, key := range countersIn(s) {
				var v string
				testproc.Eventually(t, func() bool { // on a busy machine, a Cluster can be down for a moment
					reply, err := s.Do("GET", key)
					v, _ = reply.(string)
					return err == nil || strings.Contains(err.Error(), "MOVED") // a slot has moved since KEYS
				})
				if len(v) != 17 {
					continue
				}
				n += int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(v[9:]))))
			}
		}
		return n
	}
	faults := chaosFaults(r, f, random)
	differs, worst, cycles, last := int64(0), map[string][]int64{}, 0, ""
	for end := time.Now().Add(*chaos); time.Now().Before(end) && !t.Failed(); cycles++ {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for g := range f.gateways {
			for c := range 4 {
				wg.Go(func() {
					for i := c; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(5 * time.Millisecond):
						}
						ask(g, i%chaosActors)
					}
				})
			}
		}
		time.Sleep(time.Second)
		fault := faults[random.IntN(len(faults))]
		fault.make()
		time.Sleep(time.Second)
		close(stop)
		wg.Wait()
		ready()
		for i := range f.gateways {
			f.awaitDegraded(t, i, false)
		}
		for g := range f.gateways { // a loss since the load ended is noticed
			for a := range chaosActors {
				ask(g, a)
			}
		}
		before, still := last, 0
		testproc.Becomes(func() bool { // debits and states have arrived, for three heartbeats
			time.Sleep(500 * time.Millisecond)
			now := fmt.Sprint(count())
			for _, s := range r.masters() { // a busy machine can make a replica take over
				now += " in " + s.Addr()
			}
			for i, g := range f.gateways {
				f.awaitDegraded(t, i, false)
				s := g.status(t)
				now += fmt.Sprintf(", %d debited, %d calls late, %d unknown, %d losses", s.LateDebits, s.LateCalls, s.UnknownCalls, strings.Count(g.log.String(), "Redis lost its data"))
			}
			if still++; now != last {
				last, still = now, 0
			}
			return still == 6
		})
		d := allowed.Load() - count() - differs // of this fault
		differs += d
		w := worst[fault.name]
		if w == nil {
			w = []int64{0, 0, 0}
			worst[fault.name] = w
		}
		w[0], w[1], w[2] = w[0]+1, min(w[1], d), max(w[2], d)
		if d != 0 { // several losses at one gateway are losses before the first was mended
			t.Logf("%d: %s: %d more allowed than counted; before %s; now %s", cycles, fault.name, d, before, last)
		}
	}
	t.Logf("%d faults, %d allowed, in all %d more than counted; of each fault the number, and the worst: %v", cycles, allowed.Load(), differs, worst)
}

// fault is harm to Redis or a gateway.
type fault struct {
	name string
	make func()
}

// chaosFaults returns the faults for a kind of Redis. All but those that ready ends have ended when make returns.
func chaosFaults(r *forgetful, f *fleet, random *rand.Rand) []fault {
	freeze := func(d time.Duration) {
		s := r.busiest()
		s.Freeze()
		time.Sleep(d)
		s.Thaw()
	}
	stopped := func(d time.Duration) {
		p := f.gateways[random.IntN(3)].cmd.Process
		_ = p.Signal(syscall.SIGSTOP)
		time.Sleep(d)
		_ = p.Signal(syscall.SIGCONT)
	}
	flush := func() { r.each("FLUSHALL") }
	all := []fault{
		{"FLUSHALL", flush},
		{"empty restart", r.restart},
		{"old copy", func() { r.each("SAVE"); time.Sleep(300 * time.Millisecond); r.restart() }},
		{"short freeze", func() { freeze(80 * time.Millisecond) }},
		{"frozen gateway", func() { stopped(2 * time.Second) }},
		{"FLUSHALL with a frozen gateway", func() {
			go func() { time.Sleep(100 * time.Millisecond); flush() }()
			stopped(1500 * time.Millisecond)
		}},
	}
	if r.ready == nil {
		return append(all,
			fault{"away for a second", func() { s := r.busiest(); s.Kill(); time.Sleep(time.Second); s.Restart() }},
			fault{"long freeze", func() { freeze(1500 * time.Millisecond) }})
	}
	all = append(all,
		fault{"a master dies", func() {
			s := r.busiest()
			s.Kill()
			r.promote(s)
			s.Restart()
		}},
		fault{"a master hangs", func() {
			s := r.busiest()
			s.Freeze()
			r.promote(s)
			s.Thaw()
		}},
		fault{"a replica that lags takes over", func() {
			s := r.busiest()
			r.cutReplica()
			time.Sleep(300 * time.Millisecond)
			s.Kill()
			r.lagging.Thaw()
			r.promote(s)
			s.Restart()
		}})
	if r.move != nil {
		all = append(all,
			fault{"FLUSHALL of one node", func() { r.busiest().Must("FLUSHALL") }},
			fault{"a slot moves", func() {
				keys := countersIn(r.busiest())
				key := keys[random.IntN(len(keys))]
				r.move(key[:strings.LastIndexByte(key, '}')+1])
			}})
	}
	return all
}
