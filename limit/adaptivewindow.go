// SPDX-License-Identifier: MIT

package limit

import (
	"math/bits"

	"github.com/diana-limiter/diana/internal/bounds"
)

// How an adaptive limit is found. Completions are divided into windows, of at least 50 of them or a second. The
// middle of a window is the mean of the half of its latencies that lies in the middle. A few slow or fast requests
// do not move it, and unlike a median it shows small changes.
//
//   - base is the middle without a queue. It follows the middle of windows without refusals and with half of the
//     limit unused, and falls when the middle stays a fifth below it.
//
//   - A window that did not use the limit changes nothing else.
//
//   - A window whose middle is at most 1.1 x base lets the limit grow by a sixteenth, and by more after some in a row.
//
//   - Any other one multiplies the load by 1.1 x base / middle, at least a half, and adds the sixteenth. The load is
//     the mean number in flight, and what a lower priority left free of it.
//
//   - A cut by a fifth is a question to the upstream: are there fewer requests in its queue now? If so, the latency has
//     fallen with the limit, or at least half as far. Otherwise there was no queue, and the cut has only cost
//     throughput: it is undone, and the latency becomes the base, but at most twice that of windows with room
//     left, because other gateways may cause it. So a database that slows down does
//     not reduce the limit, and an overload that lasts all day does not raise it.
//
//   - A probe is such a cut without a sign of a queue. It finds a base that was never seen, because the upstream was
//     overloaded from the start. Probes follow each other while they find a queue, and otherwise become rare: one in 30 s.
//
//   - While nothing ends for 4 x base and half of the limit is held, the limit halves once a second.
//
//   - A window in which the upstream rejected a sixteenth of the requests multiplies the limit by 0.9.
//
//     limit |        _/\_/\_            / probe that finds no queue
//     |      _/       \_/\_/\_  _/\_/\_
//     |    _/                 \/
//     | __/  growth     around the corner
//     +---------------------------------> windows
//
// Rejected, because the simulator of the tests showed it: the latency of single requests, which a slow one ruins. A
// baseline that never rises in an overload: the limit of a slower database falls to Min. A baseline that
// is reset now and then: it becomes the overload's own latency.
const (
	leastMeasured = 50        // completions of a window
	longestWindow = 1_000_000 // of a second, if there are completions at all
	mostMeasured  = 200       // completions of a window that answers a question
	mostSure      = 400       // completions of the windows whose mean is taken
	samples       = 96        // counters of the histogram: four for each doubling from 64 us

	tolerance = 1126 // 1.1 in 1/1024

	mostRise = 2 // times the base with room left, to which cuts can raise it
	trusted  = 2 // probes without a queue that make sure of a base

	firstPause = 500_000
	longPause  = 30_000_000
)

// learn takes the latency of a request that has ended as a sample.
func (a *adaptive) learn(s State, now int64, f *Flight) {
	c := s.Cells
	c[cellEnded]++
	if c[cellFirst] > 0 && now-f.Latency <= int64(c[cellOpened]) {
		c[cellFirst]--
	}
	switch {
	case f.Rejected:
		c[cellRejected]++
		return
	case f.Broken && (c[cellMid] == 0 || f.Latency <= int64(c[cellMid])):
		return
	case now < int64(c[cellCounted]) || now-f.Latency < int64(c[cellResumed]):
		return
	}
	c[cellMeasured]++
	i, low, width := bucket(f.Latency)
	parts := uint64(min(max(f.Latency-low, 0)*64/width, 63))
	if uint32(c[cellSamples+i]) < 1<<26 {
		c[cellSamples+i] += parts<<32 | 1
	}
}

// bucket returns the counter of a latency, and the range of latencies that it counts.
func bucket(latency int64) (i int, low, width int64) {
	if latency < 64 {
		return 0, 0, 64
	}
	e := bits.Len64(uint64(latency)) - 1
	sub := latency >> (e - 2) & 3
	if i = 1 + (e-6)*4 + int(sub); i >= samples {
		i = samples - 1
		e, sub = 6+(i-1)/4, int64(i-1)%4
	}
	return i, (4 + sub) << (e - 2), 1 << (e - 2)
}

// middle returns the mean of the middle half of the samples, at least 1.
func middle(counters []uint64) int64 {
	n := uint64(0)
	for _, c := range counters {
		n += uint64(uint32(c))
	}
	from, to := n/4, n-n/4
	if n < 4 {
		from, to = 0, n
	}
	var seen, sum uint64
	for i, c := range counters {
		count := uint64(uint32(c))
		if count == 0 {
			continue
		}
		begin, end := max(seen, from), min(seen+count, to)
		seen += count
		if begin >= end {
			continue
		}
		low, width := uint64(0), uint64(64)
		if i > 0 {
			e := uint(6 + (i-1)/4)
			low, width = uint64(4+(i-1)%4)<<(e-2), 1<<(e-2)
		}
		mean := low + width*(2*(c>>32)+count)/(128*count) // a part counts as its middle
		sum += mean * (end - begin)
	}
	return max(int64(sum/max(to-from, 1)), 1)
}

// roll ends a window whose time has come, and changes the limit.
func (a *adaptive) roll(s State, now int64) {
	c := s.Cells
	if c[cellOpened] == 0 {
		a.open(s, now, now)
		return
	}
	if a.stalled(s, now) {
		return
	}
	if now < int64(c[cellOpened]) { // the clock went back
		a.open(s, now, now)
		return
	}
	if c[cellFirst] > 0 {
		return
	}
	elapsed, n, mid := now-int64(c[cellCounted]), int64(c[cellMeasured]), int64(c[cellMid])
	most := int64(leastMeasured)
	if n < leastMeasured && elapsed < longestWindow {
		return
	}
	asks := c[cellAsked] != 0 || a.asks(s)
	if asks {
		most = mostMeasured
	}
	switch {
	case n >= most && elapsed >= mid:
	case elapsed >= max(longestWindow, 2*mid) && c[cellEnded] > 0 && !asks:
	case elapsed >= max(10*longestWindow, 16*mid) && n >= leastMeasured:
	case elapsed >= max(60*longestWindow, 60*mid) && c[cellEnded] > 0:
	default:
		return
	}
	pass(s, now)
	before := a.limit(s)
	a.turn(s, now, int64(c[cellArea])/max(elapsed/slot, 1))
	after := a.limit(s)
	settle := now
	if d := after - before; d > before/10 || -d > before/10 {
		c[cellSure] = 0
		settle = now + 2*max(mid, int64(c[cellMid])) // until then requests end that came under the old limit
	}
	a.open(s, now, settle)
}

// pass adds the time that has passed to cellArea. It is called before the number of held slots changes.
func pass(s State, now int64) {
	c := s.Cells
	if from := int64(max(c[cellMoved], c[cellCounted])); now > from {
		c[cellArea] += uint64(now-from) * s.Head
	}
	c[cellMoved] = max(c[cellMoved], uint64(now))
}

// asks reports whether the limit is a fifth below the one to which it is compared.
func (a *adaptive) asks(s State) bool {
	mark := int64(s.Cells[cellMark])
	return mark > 0 && a.limit(s) <= mark-mark/5
}

// open begins a window whose samples count from a moment on.
func (a *adaptive) open(s State, now, counted int64) {
	c := s.Cells
	c[cellOpened], c[cellCounted], c[cellMoved], c[cellArea] = uint64(now), uint64(counted), uint64(now), 0
	c[cellEnded], c[cellMeasured], c[cellPeak], c[cellRefused], c[cellRejected] = 0, 0, s.Head, 0, 0
	clear(c[cellSamples : cellSamples+samples])
}

// quiet reports whether nothing has ended for so long that the upstream has stalled. One slow request of a few is no
// stall.
func (a *adaptive) quiet(s State, now int64) bool {
	c, awaited := s.Cells, int64(s.Cells[cellAwaited])
	mid := int64(max(c[cellMid], c[cellBase]))
	since := now - int64(c[cellSince])
	return since > max(4*mid, 20_000) && c[cellBase] > 0 && awaited > 0 && since > 4*mid+12*mid/awaited
}

// stalled halves the limit while nothing ends.
func (a *adaptive) stalled(s State, now int64) bool {
	c, l := s.Cells, a.limit(s)
	if 2*int64(s.Head) < l/slot || !a.quiet(s, now) || now-int64(c[cellHalved]) < max(longestWindow, 4*int64(c[cellMid])) {
		return false
	}
	c[cellHalved] = uint64(now)
	a.set(s, l/2)
	a.compare(s, 0, 0)
	c[cellGood], c[cellAsked] = 0, 0
	a.open(s, now, now)
	return true
}

// set changes the limit.
func (a *adaptive) set(s State, l int64) { s.Cells[cellLimit] = uint64(min(max(l, a.min), a.max)) }

// compare sets the limit to which later ones are compared, and its latency.
func (a *adaptive) compare(s State, l, mid int64) {
	s.Cells[cellMark], s.Cells[cellMarkMid], s.Cells[cellMarkLoad] = uint64(l), uint64(mid), s.Cells[cellLoad]
}

// turn changes the limit by a window that has ended.
func (a *adaptive) turn(s State, now, load int64) {
	c, l := s.Cells, a.limit(s)
	n := int64(c[cellMeasured])
	if rejected := int64(c[cellRejected]); rejected > 0 && rejected*16 >= int64(c[cellEnded]) {
		a.set(s, l-l/10)
		a.compare(s, 0, 0)
		c[cellGood], c[cellAsked], c[cellCeiling] = 0, 0, uint64(l)
		return
	}
	if n == 0 {
		return
	}
	mid := middle(c[cellSamples : cellSamples+samples])
	old := int64(c[cellMid])
	if old == 0 { // the first ones to end are the fast ones
		c[cellMid], c[cellFirst] = uint64(mid), s.Head-s.Head/10
		return
	}
	if c[cellBase] == 0 {
		c[cellBase] = uint64(mid)
	}
	smooth := a.average(s, mid, load, n)
	base := int64(c[cellBase])
	peak := int64(c[cellPeak]) * slot
	if c[cellRefused] == 0 && peak < l-l/5 {
		if mark := int64(c[cellMark]); mark > 0 && (mark > l || c[cellAsked] != 0) { // the question has no answer
			a.set(s, mark)
		}
		a.compare(s, 0, 0)
		c[cellGood], c[cellAsked] = 0, 0
		c[cellBase] = uint64(max(base+(mid-base)*n/(n+350), 1))
		c[cellCalm], c[cellTrust] = c[cellBase], trusted
		return
	}
	if 5*smooth < 4*base && c[cellSure] == mostSure || 2*mid < base && n >= leastMeasured {
		base = smooth
		c[cellBase], c[cellTrust] = uint64(base), min(c[cellTrust], trusted-1)
	}
	if mark := int64(c[cellMark]); l < mark && 4*mid > 5*int64(c[cellMarkMid]) {
		c[cellAsked] = 0 // the latency has grown under a lower limit, so the upstream has changed
		a.compare(s, l, smooth)
	}
	if c[cellAsked] != 0 || a.asks(s) {
		if a.answer(s, now, l, mid, load, n) {
			return
		}
		base, smooth = int64(c[cellBase]), mid
	}
	a.use(s, now, l, smooth, base)
}

// answer learns from the latency under another limit than the mark. It reports whether the limit has its new value.
func (a *adaptive) answer(s State, now, l, mid, load, n int64) (done bool) {
	c := s.Cells
	mark, markMid := int64(c[cellMark]), int64(c[cellMarkMid])
	base, asked := int64(c[cellBase]), c[cellAsked]
	c[cellAsked] = 0
	ratio := load * 1024 / int64(c[cellMarkLoad])
	between := (1024 + ratio) / 2
	switch sign := 10*markMid > 11*base || c[cellTrust] < trusted; { // the answer must be clearer that contradicts the latency
	case l < mark && !sign:
		between = (1024 + 3*ratio) / 4
	case l > mark && sign:
		between = (2*1024 + ratio) / 3
	}
	grown := mid*1024/markMid > between
	known := l > mark && ratio > 1100 || l < mark && ratio < 950
	queue := grown == (l > mark)
	if known && !queue { // the latency is that of the upstream
		c[cellTrust] = min(c[cellTrust]+1, trusted)
		if 4*mid > 5*base && l < mark && mid*1024/markMid > (3*1024+ratio)/4 {
			c[cellBase] = uint64(mid)
		} else {
			c[cellBase] = uint64(max(base+(mid-base)*n/(n+350), 1))
		}
		if calm := c[cellCalm]; calm > 0 {
			c[cellBase] = min(c[cellBase], mostRise*calm)
		}
		c[cellMid], c[cellLoad] = uint64(mid), uint64(load)
	}
	if !known || queue == (l > mark) { // back
		a.set(s, mark)
		a.compare(s, 0, 0)
		if asked != 0 {
			a.wait(s, now)
		}
		return true
	}
	if queue {
		c[cellBase] = uint64(max(base+min(mid-base, 0)*n/(n+150), 1))
		c[cellMid], c[cellLoad], c[cellCeiling] = uint64(mid), uint64(load), uint64(l)
	}
	a.compare(s, l, mid)
	if asked == 0 {
		return false
	}
	if l > mark || c[cellTrust] < trusted || 3*mid < 2*base { // the corner is further away
		c[cellPause] = 0
		a.ask(s, l, mid, l > mark)
		return true
	}
	a.wait(s, now)
	return true
}

// wait makes probes rarer.
func (a *adaptive) wait(s State, now int64) {
	c := s.Cells
	mid := c[cellMid]
	c[cellPause] = min(max(2*c[cellPause], firstPause, 4*mid), max(longPause, 100*mid))
	c[cellProbe] = uint64(now) + c[cellPause]
}

// ask asks the upstream by another limit.
func (a *adaptive) ask(s State, l, mid int64, up bool) {
	a.compare(s, l, mid)
	s.Cells[cellAsked] = 1
	d := max(l/5, slot) // a part of a slot changes nothing
	if s.Cells[cellTrust] < trusted {
		d = max(l/3, slot)
	}
	if !up {
		d = -d
	}
	if a.set(s, l+d); a.limit(s) == l {
		s.Cells[cellAsked] = 0
	}
}

// average adds a window to the mean of those under about this limit, and returns their latency.
func (a *adaptive) average(s State, mid, load, n int64) int64 {
	c := s.Cells
	old, oldLoad, sure := int64(c[cellMid]), int64(c[cellLoad]), int64(c[cellSure])
	if sure == 0 || n >= 20 && (mid > 2*old || 2*mid < old) { // or the upstream has changed
		old, oldLoad, sure = mid, load, 0
	}
	sure = min(sure+n, mostSure)
	c[cellSure] = uint64(sure)
	c[cellMid] = uint64(max(old+(mid-old)*n/sure, 1))
	c[cellLoad] = uint64(max(oldLoad+(load-oldLoad)*n/sure, 1))
	return int64(c[cellMid])
}

// use changes a limit that was used.
func (a *adaptive) use(s State, now, l, mid, base int64) {
	c := s.Cells
	if l >= int64(c[cellMark]) {
		a.compare(s, l, mid)
	}
	if l-slot < a.min {
		c[cellTrust] = trusted // nothing to learn below
	}
	gradient := base * (tolerance + 1536*slot/l) / mid
	switch {
	case c[cellSure] >= 3*leastMeasured && (now >= int64(c[cellProbe]) || c[cellTrust] < trusted) && 8*c[cellRefused] >= c[cellRefused]+c[cellEnded]:
		c[cellTurn]++
		c[cellProbe] = uint64(now) + c[cellPause]
		a.ask(s, l, mid, gradient < 1024 && c[cellTurn]%2 == 0 && c[cellTrust] == trusted || l <= a.min)
		return
	case gradient < 1024:
		c[cellGood] = 0
		c[cellCeiling] = uint64(l)
		a.set(s, max(min(a.full(s, now), l)*gradient/1024, l/2)+l/32)
	default:
		c[cellGood]++
		a.set(s, l+max(l/32, slot/8)*growth(l, int64(c[cellCeiling]), int64(c[cellGood])))
	}
	if after := a.limit(s); after >= int64(c[cellMark]) {
		a.compare(s, after, mid)
	}
}

// full returns the load of a limit whose slots are all used. Lower priorities leave slots free for higher ones.
func (a *adaptive) full(s State, now int64) int64 {
	active := 0
	for _, came := range s.Cells[cellCame : cellCame+bounds.MaxPriorities] {
		if came > 0 && now-int64(came) < activeFor {
			active++
		}
	}
	load := int64(s.Cells[cellLoad])
	if active > 1 {
		load = load * 100 / (100 - a.keep)
	}
	return load
}

// growth returns by how many parts of 32 a limit grows after so many good windows in a row.
func growth(l, ceiling, good int64) int64 {
	if ceiling > 0 && l >= ceiling-ceiling/5 {
		good = (good - min(8, l/slot/2)) / 2 // slowly past the place where there was a queue
	}
	return 1 << min(max(good, 0), 4)
}
