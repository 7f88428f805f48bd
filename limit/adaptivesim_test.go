// SPDX-License-Identifier: MIT

package limit

import (
	"container/heap"
	"math/rand/v2"
)

// upstream simulates, at simulated time, a server behind an adaptive limit: requests arrive at random, and wait in
// one queue for one of its workers. Moments are in microseconds.
type upstream struct {
	workers int64
	service func(now int64) int64 // time that a worker takes for a request
	stalled func(now int64) int64 // until when nothing ends; may be nil
	rate    float64               // arrivals a second
	level   func(*rand.Rand) (level int64, client uint64)

	meter *adaptive
	state State
	fleet []State // of further gateways in front of the same server
	rand  *rand.Rand
	now   int64

	next   int64 // arrival
	ends   endings
	free   idle // moments at which workers are free
	onEnd  func(f *Flight, latency int64)
	onCome func(f *Flight, allowed bool)
	done   int64
	came   int64
	refuse int64
}

type ending struct {
	at, from int64
	flight   Flight
	gateway  int
}

type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newUpstream(l Limit, workers int64, seed uint64) *upstream {
	m, err := newAdaptive(l)
	if err != nil {
		panic(err)
	}
	return &upstream{meter: m.(*adaptive), state: State{Cells: make([]uint64, cells)}, now: 1_000_000, next: 1_000_000,
		rand: rand.New(rand.NewPCG(seed, 1)), workers: workers}
}

// run simulates until a moment.
func (u *upstream) run(until int64) {
	for {
		if len(u.ends) > 0 && u.ends[0].at <= min(u.next, until) {
			e := heap.Pop(&u.ends).(ending)
			u.now = e.at
			e.flight.Measured, e.flight.Latency = true, e.at-e.from
			s := u.gateway(e.gateway)
			s.Head = u.meter.Leave(*s, u.now, 1, &e.flight)
			u.done++
			if u.onEnd != nil {
				u.onEnd(&e.flight, e.at-e.from)
			}
			continue
		}
		if u.next > until {
			u.now = until
			return
		}
		u.now = u.next
		u.next += int64(u.rand.ExpFloat64()*1e6/u.rate) + 1
		u.arrive()
	}
}

func (u *upstream) arrive() {
	f := Flight{Client: 1}
	if u.level != nil {
		f.Level, f.Client = u.level(u.rand)
	}
	u.came++
	gateway := 0
	if len(u.fleet) > 0 {
		gateway = u.rand.IntN(1 + len(u.fleet))
	}
	s := u.gateway(gateway)
	out := u.meter.Admit(*s, u.now, 1, &f)
	if u.onCome != nil {
		u.onCome(&f, out.Allowed)
	}
	if !out.Allowed {
		u.refuse++
		u.meter.Refuse(*s, u.now, &f)
		return
	}
	s.Head = u.meter.Enter(*s, u.now, 1, &f)
	begin := u.now
	for int64(len(u.free)) > u.workers {
		heap.Pop(&u.free)
	}
	for int64(len(u.free)) < u.workers {
		heap.Push(&u.free, u.now)
	}
	// The queue is the order of arrival, so a request gets the worker that is free first.
	begin = max(begin, u.free[0])
	end := begin + u.service(u.now)
	if u.stalled != nil {
		end = max(end, u.stalled(end))
	}
	u.free[0] = end
	heap.Fix(&u.free, 0)
	heap.Push(&u.ends, ending{end, u.now, f, gateway})
}

// gateway returns the state of a gateway.
func (u *upstream) gateway(i int) *State {
	if i == 0 {
		return &u.state
	}
	return &u.fleet[i-1]
}

func (u *upstream) slots() float64 { return float64(u.meter.limit(u.state)) / slot }

// exponential returns a service of random times, and constant is one of 20 ms.
func (u *upstream) exponential(mean float64) func(int64) int64 {
	return func(int64) int64 { return int64(u.rand.ExpFloat64()*mean) + 1 }
}

func constant(int64) int64 { return 20_000 }

type idle []int64

func (m idle) Len() int           { return len(m) }
func (m idle) Less(i, j int) bool { return m[i] < m[j] }
func (m idle) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *idle) Push(x any)        { *m = append(*m, x.(int64)) }
func (m *idle) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
