// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// windows simulates until so many windows have ended.
func (u *upstream) windows(n int) {
	for last := u.state.Cells[cellOpened]; n > 0; {
		u.run(u.now + 1000)
		if opened := u.state.Cells[cellOpened]; opened != last {
			last = opened
			n--
		}
	}
}

// mean returns the mean limit of so many windows.
func (u *upstream) mean(windows int) float64 {
	sum := 0.0
	for range windows {
		u.windows(1)
		sum += u.slots()
	}
	return sum / float64(windows)
}

// near reports whether a limit is at most a fifth below the capacity and three tenths above, or three slots off.
func near(limit float64, workers int64) bool {
	return limit > min(0.8*float64(workers), float64(workers)-3) && limit < max(1.35*float64(workers), float64(workers)+4)
}

func TestAdaptiveFindsCapacity(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, workers := range []int64{1, 4, 16, 64, 256} {
		for _, from := range []int64{1, 20, min(3*workers, 192)} {
			for _, over := range []float64{2, 3, 10} {
				u := newUpstream(Limit{N: 1000}, workers, uint64(workers))
				u.service = constant
				u.rate = 0.5 * float64(workers) * 50 // it learns what is usual
				u.run(u.now + 1_000_000)
				u.meter.set(u.state, from*slot)
				u.rate = over * float64(workers) * 50
				u.windows(40)
				if got := u.mean(40); !near(got, workers) {
					t.Errorf("%d workers from %d at %v times their capacity: a limit of %.1f after 40 windows", workers, from, over, got)
				}
			}
		}
	}
}

// The base was never seen without a queue.
func TestAdaptiveStartsOverloaded(t *testing.T) {
	t.Parallel()
	for _, workers := range []int64{4, 8, 64} {
		u := newUpstream(Limit{N: 1000}, workers, 1)
		u.service = constant
		u.rate = 5 * float64(workers) * 50
		u.windows(40)
		if got := u.mean(40); !near(got, workers) {
			t.Errorf("%d workers: a limit of %.1f after 40 windows", workers, got)
		}
	}
}

// goodput returns the answers within three times the unloaded 99th percentile, as a part of the capacity, and the
// part of requests refused, over half of the time.
func (u *upstream) goodput(mean float64, seconds int64) (good, refused float64) {
	u.service = u.exponential(mean)
	end := u.now + seconds*1_000_000
	half := u.now + seconds*500_000
	n := 0.0
	u.onEnd = func(_ *Flight, latency int64) {
		if u.now > half && float64(latency) < 3*4.6*mean {
			n++
		}
	}
	u.run(half)
	u.came, u.refuse = 0, 0
	u.run(end)
	return n * mean / 1e6 / float64(u.workers) / float64(seconds) * 2, float64(u.refuse) / float64(u.came)
}

func TestAdaptiveGoodput(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for _, workers := range []int64{4, 16, 64} {
		for _, load := range []float64{0.5, 2, 5, 10} {
			var good []float64
			worst := 0.0
			for seed := range seeds {
				u := newUpstream(Limit{N: 1000}, workers, uint64(seed))
				u.rate = load * float64(workers) * 50
				g, refused := u.goodput(20_000, 20)
				good, worst = append(good, g), max(worst, refused)
			}
			slices.Sort(good)
			t.Logf("%d workers at %v times their capacity: goodput %.3f, 10th percentile %.3f", workers, load, good[seeds/2], good[seeds/10])
			switch {
			case load < 1 && worst > 0.005:
				t.Errorf("%d workers: %.2f%% refused at half of the capacity", workers, 100*worst)
			case load > 1 && good[seeds/10] < map[int64]float64{4: 0.7, 16: 0.92, 64: 0.95}[workers]:
				t.Errorf("%d workers at %v times their capacity: the 10th percentile of goodput is %.3f", workers, load, good[seeds/10])
			}
		}
	}
}

func TestAdaptiveRecovers(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for seed := range uint64(5) {
		mean := 20_000.0
		u := newUpstream(Limit{N: 1000}, 64, seed)
		u.service = func(int64) int64 { return int64(u.rand.ExpFloat64() * mean) }
		u.rate = 2 * 64 * 50
		settled := func(what string) {
			t.Helper()
			u.run(u.now + 4_000_000)
			done := u.done
			u.run(u.now + 4_000_000)
			if got := float64(u.done-done) * mean / 4e6 / float64(u.workers); got < 0.75 {
				t.Errorf("seed %d, %s: %.2f of the capacity is used, at a limit of %.1f", seed, what, got, u.slots())
			}
			if u.slots() > 2.5*float64(u.workers) {
				t.Errorf("seed %d, %s: a limit of %.1f", seed, what, u.slots())
			}
		}
		settled("at the start")
		u.workers = 16
		settled("with a quarter of the workers")
		u.workers = 64
		settled("with all of them again")
		mean *= 4
		settled("with a database four times as slow")
		mean /= 4
		settled("with a database as fast as before")
		until := u.now + 2_000_000
		u.stalled = func(end int64) int64 {
			if end < until {
				return until
			}
			return end
		}
		u.run(until - 1)
		if u.slots() > 64 {
			t.Errorf("seed %d: a limit of %.1f after a stall of 2 s", seed, u.slots())
		}
		settled("after a stall of 2 s")
	}
}

func TestAdaptiveDay(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	u := newUpstream(Limit{N: 1000}, 16, 3)
	u.service = u.exponential(2_000_000)
	u.rate = 16
	for hour := range 24 {
		sum := 0.0
		for range 60 {
			u.run(u.now + 60_000_000)
			sum += u.slots() / 60
		}
		if hour > 0 && (sum < 0.5*16 || sum > 1.6*16) {
			t.Errorf("hour %d: a mean limit of %.1f, expected about 16", hour, sum)
		}
	}
}

// A language model answers after half a minute.
func TestAdaptiveSlowAnswers(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 40, 1)
	u.service = func(int64) int64 { return 20_000_000 + int64(u.rand.Float64()*20e6) }
	u.rate = 3
	u.run(3600_000_000)
	if got := u.slots(); got < 28 || got > 60 {
		t.Errorf("a limit of %.1f after an hour, expected about 40", got)
	}
}

// Answers begin after half a second and last 20 s, as those of a language model in a gateway. A worker is held to the
// end, and latency is the time to the beginning.
func TestAdaptiveStreams(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 40, 1)
	type stream struct {
		Flight
		from, begins, ends int64
	}
	var streams []stream
	workers := make([]int64, 40) // when each is free
	for end := u.now + 3600_000_000; u.now < end; u.now += 10_000 {
		streams = slices.DeleteFunc(streams, func(f stream) bool {
			if u.now < f.ends {
				return false
			}
			f.Reported = true
			u.state.Head = u.meter.Leave(u.state, u.now, 1, &f.Flight)
			return true
		})
		for i := range streams {
			if f := &streams[i]; f.begins > 0 && u.now >= f.begins {
				f.Measured, f.Latency, f.begins = true, u.now-f.from, 0
				u.state.Head = u.meter.Leave(u.state, u.now, 0, &f.Flight)
				f.Measured = false
			}
		}
		f := stream{Flight: Flight{Client: mix(u.rand.Uint64N(100))}, from: u.now}
		if u.rand.Float64() > 0.04 { // 4 a second, and 2 is the capacity
			continue
		}
		if !u.meter.Admit(u.state, u.now, 1, &f.Flight).Allowed {
			u.meter.Refuse(u.state, u.now, &f.Flight)
			continue
		}
		u.state.Head = u.meter.Enter(u.state, u.now, 1, &f.Flight)
		slices.Sort(workers)
		begins := max(workers[0], u.now)
		workers[0] = begins + 10_000_000 + u.rand.Int64N(20_000_000)
		f.begins, f.ends = begins+300_000+u.rand.Int64N(400_000), workers[0]
		streams = append(streams, f)
	}
	if got := u.slots(); got < 0.8*40 || got > 1.3*40 {
		t.Errorf("a limit of %.1f after an hour, expected about 40", got)
	}
}

// A quarter of the answers tells nothing of the upstream.
func TestAdaptiveAttackedByLatency(t *testing.T) {
	t.Parallel()
	for name, latency := range map[string]int64{"fast": 100, "slow": 2_000_000} {
		u := newUpstream(Limit{N: 1000}, 64, 1)
		u.rate = 2 * 64 * 50
		u.service = func(int64) int64 { return 20_000 }
		turn := 0
		ended := func(f *Flight, _ int64) {
			if turn++; turn%5 == 0 { // as if one more request had ended, with a latency of the attacker's choice
				g := Flight{Client: 7, Measured: true, Latency: latency}
				u.state.Head = u.meter.Enter(u.state, u.now, 1, &g)
				u.state.Head = u.meter.Leave(u.state, u.now, 1, &g)
			}
		}
		u.onEnd = ended
		u.run(u.now + 10_000_000)
		if got := u.mean(40); got < 0.7*64 || got > 1.5*64 {
			t.Errorf("a client whose answers are %s: a limit of %.1f, expected about 64", name, got)
		}
	}
}

// A client asks for a cached file three times as often as all others ask for anything, now and then.
func TestAdaptiveAttackedByCachedFile(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{0.5, 2} {
		u := newUpstream(Limit{N: 1000}, 64, 1)
		u.rate = load * 64 * 50
		u.service = u.exponential(20_000)
		u.level = func(r *rand.Rand) (int64, uint64) { return 0, mix(100 + r.Uint64N(1000)) }
		attacks := false
		u.onEnd = func(*Flight, int64) {
			for range 3 {
				if attacks {
					f := Flight{Client: mix(7), Measured: true, Latency: 100}
					u.state.Head = u.meter.Enter(u.state, u.now, 1, &f)
					u.state.Head = u.meter.Leave(u.state, u.now, 1, &f)
				}
			}
		}
		for turn := range 8 {
			attacks = turn%2 == 0
			u.came, u.refuse = 0, 0
			u.run(u.now + 5_000_000)
			if part := float64(u.refuse) / float64(u.came); part > max(1-1/load, 0)+0.1 {
				t.Errorf("at %v times the capacity, in turn %d, %.2f of the others' requests are refused at a limit of %.1f", load, turn, part, u.slots())
			}
		}
	}
}

// The same before an overload, when nobody is refused and so nobody's work is counted.
func TestAdaptiveOverloadAfterCachedFile(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = u.exponential(20_000)
	u.rate = 0.5 * 64 * 50
	u.onEnd = func(*Flight, int64) {
		for range 3 {
			f := Flight{Measured: true, Latency: 100}
			u.state.Head = u.meter.Enter(u.state, u.now, 1, &f)
			u.state.Head = u.meter.Leave(u.state, u.now, 1, &f)
		}
	}
	u.run(u.now + 5_000_000)
	u.onEnd = nil
	u.rate *= 4
	for turn := range 4 {
		u.came, u.refuse = 0, 0
		u.run(u.now + 5_000_000)
		if part := float64(u.refuse) / float64(u.came); part > 0.6 {
			t.Errorf("in turn %d, %.2f are refused at a limit of %.1f", turn, part, u.slots())
		}
	}
}

// The first requests are WebSockets, whose latency is never known.
func TestAdaptiveStartsWithWebSockets(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 4, 1)
	for range 5 {
		u.state.Head = u.meter.Enter(u.state, u.now, 1, &Flight{})
	}
	u.service = constant
	u.rate = 3 * 4 * 50
	u.run(u.now + 20_000_000)
	if got := u.slots(); got > 5+8 {
		t.Errorf("a limit of %.1f with 5 WebSockets and 4 workers", got)
	}
}

func TestAdaptivePriorities(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = u.exponential(20_000)
	u.rate = 5 * 64 * 50
	u.level = func(r *rand.Rand) (int64, uint64) {
		switch x := r.Float64(); {
		case x < 0.1: // half of the capacity
			return 0, 1 + r.Uint64N(1000)
		case x < 0.5:
			return 1, 1 + r.Uint64N(1000)
		}
		return 2, 1 + r.Uint64N(1000)
	}
	var latencies []int64
	var refused, came [3]int
	u.onEnd = func(f *Flight, latency int64) {
		if f.Level == 0 && u.now > 6_000_000 {
			latencies = append(latencies, latency)
		}
	}
	u.onCome = func(f *Flight, allowed bool) {
		if u.now < 6_000_000 {
			return
		}
		came[f.Level]++
		if !allowed {
			refused[f.Level]++
		}
	}
	u.run(20_000_000)
	slices.Sort(latencies)
	if p99 := latencies[len(latencies)*99/100]; p99 > 2*92_000 {
		t.Errorf("the 99th percentile of the highest priority is %d us, expected at most twice 92,000", p99)
	}
	part := func(level int) float64 { return float64(refused[level]) / float64(came[level]) }
	if part(0) > 0.05 || part(1) < part(0) || part(2) < part(1) || part(2) > 0.999 {
		t.Errorf("refused by priority: %.3f, %.3f, %.3f", part(0), part(1), part(2))
	}
}

// Six clients send as much as a thousand others send together, ten times over.
func TestAdaptiveFairness(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = u.exponential(20_000)
	u.rate = 5 * 64 * 50
	u.level = func(r *rand.Rand) (int64, uint64) {
		if r.Float64() < 0.9 {
			return 0, mix(1 + r.Uint64N(6))
		}
		return 0, mix(100 + r.Uint64N(1000))
	}
	heavies := map[uint64]bool{}
	for i := range uint64(6) {
		heavies[mix(1+i)] = true
	}
	came, refused := 0, 0
	u.onCome = func(f *Flight, allowed bool) {
		if u.now < 6_000_000 || heavies[f.Client] {
			return
		}
		came++
		if !allowed {
			refused++
		}
	}
	u.run(20_000_000)
	if part := float64(refused) / float64(came); part > 0.05 {
		t.Errorf("%.3f of the requests of light clients are refused, expected almost none", part)
	}
}

// Whatever comes, the limit stays between Min and N, and no slot is lost.
func TestAdaptiveRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 50).Draw(t, "N")
		least := rapid.Int64Range(1, n).Draw(t, "Min")
		m, err := newAdaptive(Limit{N: n, Min: least, Keep: rapid.Int64Range(-1, 50).Draw(t, "Keep")})
		if err != nil {
			t.Fatal(err)
		}
		a := m.(*adaptive)
		s := State{Cells: make([]uint64, cells)}
		type flown struct {
			Flight
			from int64
		}
		var flights []flown
		now := int64(1_000_000)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 5_000_000), rapid.Just(int64(-500))).Draw(t, "time")
			if len(flights) > 0 && rapid.Bool().Draw(t, "ends") {
				i := rapid.IntRange(0, len(flights)-1).Draw(t, "which")
				f := flights[i]
				flights = slices.Delete(flights, i, i+1)
				f.Measured, f.Broken, f.Latency = rapid.Bool().Draw(t, "measured"), rapid.Bool().Draw(t, "broken"), max(now-f.from, 0)
				f.Rejected = rapid.Bool().Draw(t, "rejected")
				s.Head = a.Leave(s, now, 1, &f.Flight)
			} else {
				f := flown{Flight{Level: rapid.Int64Range(0, 7).Draw(t, "level"), Client: rapid.Uint64Range(0, 5).Draw(t, "client")}, now}
				limit := a.limit(s) / slot
				out := a.Admit(s, now, 1, &f.Flight)
				if out.Allowed != (out.Wait == 0) || out.Allowed && int64(len(flights)) >= limit {
					t.Fatalf("%+v with %d in flight and a limit of %d", out, len(flights), limit)
				}
				if out.Allowed {
					s.Head = a.Enter(s, now, 1, &f.Flight)
					flights = append(flights, f)
				} else {
					a.Refuse(s, now, &f.Flight)
				}
			}
			if l := a.limit(s); l < least*slot || l > n*slot {
				t.Fatalf("a limit of %d/1024, expected %d to %d", l, least, n)
			}
			held := uint64(0)
			for _, h := range s.Cells[cellHeld : cellHeld+bounds.MaxPriorities] {
				held += h
			}
			if s.Head != uint64(len(flights)) || held != s.Head {
				t.Fatalf("%d slots and %d by priority with %d in flight", s.Head, held, len(flights))
			}
		}
	})
}

// A request of the highest priority finds a slot while one is free, and lower ones that of Least.
func TestAdaptiveThresholds(t *testing.T) {
	t.Parallel()
	m, err := newAdaptive(Limit{N: 100, Min: 100})
	if err != nil {
		t.Fatal(err)
	}
	a, s := m.(*adaptive), State{Cells: make([]uint64, cells)}
	enter := func(level int64) (n int) {
		for {
			f := Flight{Level: level}
			if !a.Admit(s, 1, 1, &f).Allowed {
				return n
			}
			s.Head = a.Enter(s, 1, 1, &f)
			n++
		}
	}
	first := Flight{}
	s.Head = a.Enter(s, 1, 1, &first)
	second := Flight{Level: 1}
	s.Head = a.Enter(s, 1, 1, &second)
	if n := enter(2); n != 78 {
		t.Errorf("%d of the lowest priority, expected 80 slots less 2", n)
	}
	if n := enter(1); n != 10 {
		t.Errorf("%d more of the middle priority, expected 90 slots", n)
	}
	if n := enter(3); n != 5 {
		t.Errorf("%d of a priority without a slot, expected 5%%", n)
	}
	if n := enter(0); n != 5 {
		t.Errorf("%d more of the highest priority, expected all slots", n)
	}
	if got := fmt.Sprint(s.Head); got != "100" {
		t.Errorf("%s slots are held", got)
	}
}

// The upstream says that it has too much to do.
func TestAdaptiveRejected(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = constant
	u.rate = 64 * 50 / 2
	u.run(u.now + 2_000_000)
	before := u.slots()
	for range 200 {
		f := Flight{}
		u.now += 10_000
		u.state.Head = u.meter.Enter(u.state, u.now, 1, &f)
		f.Measured, f.Rejected, f.Latency = true, true, 1000
		u.state.Head = u.meter.Leave(u.state, u.now, 1, &f)
	}
	if u.slots() > 0.95*before {
		t.Errorf("a limit of %.1f, expected less than %.1f", u.slots(), before)
	}
}

// A client opens answers that never end, such as streams. The others still find slots.
func TestAdaptiveAttackedByEndlessAnswers(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = u.exponential(20_000)
	u.rate = 0.5 * 64 * 50
	u.level = func(r *rand.Rand) (int64, uint64) { return 0, mix(100 + r.Uint64N(1000)) }
	u.run(u.now + 3_000_000)
	turn := 0
	u.onCome = func(*Flight, bool) {
		f := Flight{Client: mix(7)}
		if turn++; turn%10 != 0 {
			return
		}
		if !u.meter.Admit(u.state, u.now, 1, &f).Allowed {
			u.meter.Refuse(u.state, u.now, &f)
			return
		}
		u.state.Head = u.meter.Enter(u.state, u.now, 1, &f)
		f.Measured, f.Latency = true, 100
		u.state.Head = u.meter.Leave(u.state, u.now, 0, &f) // its first byte
	}
	u.run(u.now + 20_000_000)
	u.came, u.refuse = 0, 0
	u.run(u.now + 20_000_000)
	if part := float64(u.refuse) / float64(u.came); part > 0.05 {
		t.Errorf("%.2f of the others' requests are refused at a limit of %.1f, of which %d slots are held", part, u.slots(), u.state.Head)
	}
}

// The upstream rejects requests of a client that sends too many, and later those of all for a while.
func TestAdaptiveRejectedForAWhile(t *testing.T) {
	t.Parallel()
	u := newUpstream(Limit{N: 1000}, 64, 1)
	u.service = u.exponential(20_000)
	u.rate = 2 * 64 * 50
	u.level = func(r *rand.Rand) (int64, uint64) { return 0, mix(100 + r.Uint64N(1000)) }
	rejects := func(client func() uint64) func(*Flight, int64) {
		return func(*Flight, int64) {
			if u.rand.IntN(3) == 0 {
				f := Flight{Client: client(), Measured: true, Broken: true, Rejected: true, Latency: 1000}
				u.state.Head = u.meter.Enter(u.state, u.now, 1, &f)
				u.state.Head = u.meter.Leave(u.state, u.now, 1, &f)
			}
		}
	}
	u.run(u.now + 5_000_000)
	u.onEnd = rejects(func() uint64 { return mix(7) })
	u.run(u.now + 5_000_000)
	if got := u.mean(80); got < 0.7*64 {
		t.Errorf("a limit of %.1f while one client is rejected, expected about 64", got)
	}
	u.onEnd = rejects(func() uint64 { return mix(100 + u.rand.Uint64N(1000)) })
	u.run(u.now + 5_000_000)
	if got := u.slots(); got > 8 {
		t.Errorf("a limit of %.1f while a quarter is rejected", got)
	}
	u.onEnd = nil
	u.windows(40)
	if got := u.mean(40); got < 0.7*64 {
		t.Errorf("a limit of %.1f after 40 windows without rejections, expected about 64", got)
	}
}

// Gateways in front of one upstream do not know of each other. Their limits stay bounded by the latency that each
// has seen with room left.
func TestAdaptiveFleet(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for seed := range uint64(5) {
		u := newUpstream(Limit{N: 1000}, 60, seed)
		for range 2 {
			u.fleet = append(u.fleet, State{Cells: make([]uint64, cells)})
		}
		u.service = u.exponential(20_000)
		u.rate = 0.5 * 60 * 50
		u.run(u.now + 5_000_000)
		u.rate = 3 * 60 * 50
		u.run(u.now + 40_000_000)
		sum := 0.0
		const samples = 100
		for range samples {
			u.run(u.now + 100_000)
			for i := range 3 {
				sum += float64(u.meter.limit(*u.gateway(i))) / slot / samples
			}
		}
		t.Logf("limits %.1f in all", sum)
		if sum < 0.7*60 || sum > 3.5*60 {
			t.Errorf("the limits of three gateways are %.1f in all, expected 60 to 200", sum)
		}
	}
}
