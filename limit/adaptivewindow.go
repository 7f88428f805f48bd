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
//   - base is the middle without a queue. It follows windows without refusals that leave a fifth of the limit unused, and
//     falls when the middle stays a fifth below it.
//
//   - slowest is the latency from which there is a queue: 1.1 x base, and more where latencies differ much, because these
//     hide a short queue, and servers that are idle by chance cost more than it does.
//
//   - A window up to slowest lets the limit grow by 1/32, by more after some in a row, and by a quarter if requests were
//     refused far from the last queue. It does not grow while the latency is twice what it was with room left, because
//     other gateways may cause that.
//
//   - A window less than a quarter above it sets the limit to load x slowest / middle, and 1/32 more: by Little's law
//     the throughput times the latency that is wanted. The load is the mean number in flight, and what a lower
//     priority left free of it.
//
//   - Anything slower, once it rises no more, makes the gateway ask the upstream. It lowers the limit to four fifths of
//     where the queue should begin, at least to three fifths, or to a half while the base is not sure, and measures more
//     requests the more their latencies differ. If the latency falls with the load, there is a queue. Otherwise it is
//     the new base: a database that slows down does not reduce the limit. Either way the limit becomes what the throughput before was worth.
//
//   - While many are refused, the gateway also asks without a sign, now and then. So it finds a base that was never seen,
//     because the upstream was overloaded from the start, and an overload that lasts all day does not raise the limit.
//
//   - While nothing ends for 4 x base and half of the limit is held, the limit halves once a second. The next answer
//     restores it, because a stall is no queue.
//
//   - A window in which the upstream rejected a sixteenth of the requests multiplies the limit by 0.9.
//
//     limit |        _/\_   _/\_        / question
//     |      _/    | |    | |  _/\_
//     |    _/      |_|    |_|
//     | __/  growth
//     +---------------------------------> windows
//
// Rejected, because the simulator of the tests showed it: the latency of single requests, which a slow one ruins. A
// baseline that never rises in an overload: the limit of a slower database falls to Min. A baseline that
// is reset now and then: it becomes the overload's own latency. Cuts that are no question: with 50 random
// latencies in a window, each is too deep by chance, and the limit falls below the capacity.
const (
	leastMeasured = 50        // completions of a window
	longestWindow = 1_000_000 // of a second, if there are completions at all
	mostMeasured  = 800       // completions of the answer to a question
	mostSure      = 400       // completions of the windows whose mean is taken
	samples       = 96        // counters of the histogram: four for each doubling from 64 us

	tolerance = 1126 // 1.1 in 1/1024

	mostRise = 2 // times the latency with room left, up to which a limit grows
	trusted  = 2 // answers that make sure of a base

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
		if f.Client == 0 || fair(c, f.Client, c[cellEnded], 0) {
			c[cellRejected]++
		}
		return
	case f.Broken && (c[cellMid] == 0 || f.Latency <= int64(c[cellMid])):
		return
	case now < int64(c[cellCounted]) || now-f.Latency < int64(c[cellResumed]):
		return
	}
	if f.Client != 0 && !fair(c, f.Client, 2*c[cellMeasured], 2) {
		return
	}
	c[cellMeasured]++
	i, low, width := bucket(f.Latency)
	parts := uint64(min(max(f.Latency-low, 0)*64/width, 63))
	if uint32(c[cellSamples+i]) < 1<<26 {
		c[cellSamples+i] += parts<<32 | 1
	}
}

// fair notes a request of a client that has ended, and reports whether it counts. A client with many requests says no
// more of the upstream than two others, and of its rejections no more than one. So one that asks for a cached file does not make all
// others look slow, and the upstream may reject a client for its own limit. All clients have so many; the client also
// has an extra.
func fair(c []uint64, client, all, extra uint64) bool {
	seen := &c[cellSeen+column(client, 0)]
	if *seen == 0 {
		c[cellClients]++
	}
	if *seen > all/c[cellClients]+extra {
		return false
	}
	*seen++
	return true
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

// middle returns the mean of the middle half of the samples, at least 1. The spread, in 1/1024 of it, is how far the
// upper half of these is above the lower one.
func middle(counters []uint64) (mid, spread int64) {
	n := uint64(0)
	for _, c := range counters {
		n += uint64(uint32(c))
	}
	from, to := n/4, n-n/4
	if n < 4 {
		from, to = 0, n
	}
	half := from + (to-from)/2
	var seen, sum, lower uint64
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
		if begin < half {
			lower += mean * (min(end, half) - begin)
		}
	}
	mid = max(int64(sum/max(to-from, 1)), 1)
	above, below := (sum-lower)/max(to-half, 1), lower/max(half-from, 1)
	return mid, min(int64(above-min(below, above))*1024/mid, 1024)
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
	elapsed, n, mid := now-int64(c[cellCounted]), int64(c[cellMeasured]), int64(c[cellMid])
	if c[cellFirst] > 0 && elapsed < max(longestWindow, 8*mid) { // the latency of some may never be known
		return
	}
	c[cellFirst] = 0
	if n < leastMeasured && elapsed < longestWindow {
		return
	}
	switch most := a.enough(s); {
	case n >= most && elapsed >= mid:
	case elapsed >= max(longestWindow, 2*mid) && c[cellEnded] > 0 && c[cellAsked] == 0:
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

// pass adds the time that has passed to cellArea. It is called before the number of awaited requests changes.
func pass(s State, now int64) {
	c := s.Cells
	if from := int64(max(c[cellMoved], c[cellCounted])); now > from {
		c[cellArea] += uint64(now-from) * c[cellAwaited]
	}
	c[cellMoved] = max(c[cellMoved], uint64(now))
}

// enough returns how many samples end a window. An answer needs more of them the more latencies differ, and the less the
// limit is below the mark.
func (a *adaptive) enough(s State) int64 {
	c := s.Cells
	if c[cellAsked] == 0 {
		return leastMeasured
	}
	mark := int64(c[cellMark])
	lower := max((mark-a.limit(s))*1024/mark, 1)
	ratio := min(int64(c[cellSpread])*1024/lower, 8*1024)
	return min(max(43*ratio*ratio>>20, leastMeasured), mostMeasured)
}

// open begins a window whose samples count from a moment on.
func (a *adaptive) open(s State, now, counted int64) {
	c := s.Cells
	c[cellOpened], c[cellCounted], c[cellMoved], c[cellArea] = uint64(now), uint64(counted), uint64(now), 0
	c[cellEnded], c[cellMeasured], c[cellPeak], c[cellRefused], c[cellRejected] = 0, 0, s.Head, 0, 0
	clear(c[cellClients:cellWork])
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
	if c[cellBefore] == 0 {
		c[cellBefore] = uint64(l)
	}
	c[cellHalved] = uint64(now)
	a.set(s, l/2)
	c[cellGood], c[cellAsked] = 0, 0
	a.open(s, now, now)
	return true
}

// set changes the limit.
func (a *adaptive) set(s State, l int64) { s.Cells[cellLimit] = uint64(min(max(l, a.min), a.max)) }

// turn changes the limit by a window that has ended.
func (a *adaptive) turn(s State, now, load int64) {
	c, l := s.Cells, a.limit(s)
	n := int64(c[cellMeasured])
	if rejected := int64(c[cellRejected]); rejected > 0 && rejected*16 >= int64(c[cellEnded]) {
		a.set(s, l-l/10)
		if c[cellGood] > 0 || c[cellCeiling] == 0 { // the first of several
			c[cellCeiling] = uint64(l)
		}
		c[cellGood], c[cellAsked] = 0, 0
		return
	}
	if n == 0 {
		return
	}
	mid, spread := middle(c[cellSamples : cellSamples+samples])
	c[cellSpread] = uint64(int64(c[cellSpread]) + (spread-int64(c[cellSpread]))/4)
	if c[cellMid] == 0 { // the first ones to end are the fast ones
		c[cellMid], c[cellFirst] = uint64(mid), s.Head-s.Head/10
		return
	}
	smooth := a.average(s, mid, load, n)
	if c[cellBase] == 0 {
		if c[cellSure] < 2*leastMeasured { // one window of random latencies is no base
			return
		}
		c[cellBase] = uint64(smooth)
	}
	base, rises := int64(c[cellBase]), 5*mid > 6*int64(c[cellLast])
	c[cellLast] = uint64(mid)
	switch {
	case c[cellRefused] == 0 && int64(c[cellPeak])*slot < l-l/5:
		if c[cellAsked] != 0 { // the question has no answer
			a.set(s, int64(c[cellMark]))
		}
		c[cellGood], c[cellAsked] = 0, 0
		c[cellBase] = uint64(max(base+(mid-base)*n/(n+350), 1))
		c[cellCalm], c[cellTrust] = c[cellBase], trusted
		return
	case c[cellAsked] != 0:
		a.answer(s, now, mid, load, n)
		return
	case 5*smooth < 4*base && c[cellSure] == mostSure || 2*mid < base && n >= leastMeasured:
		c[cellBase], c[cellTrust] = uint64(smooth), min(c[cellTrust], trusted-1)
	}
	a.use(s, now, l, smooth, rises)
}

// slowest returns the latency from which there is a queue.
func (a *adaptive) slowest(s State) int64 {
	varied := max(int64(s.Cells[cellSpread])-256, 0) // a queue alone spreads constant latencies by up to that
	return int64(s.Cells[cellBase]) * (tolerance + 1536*slot/a.limit(s) + min(varied*2, 1024)) / 1024
}

// ask lowers the limit to learn whether the latency falls with the load.
func (a *adaptive) ask(s State, now, l, mid int64) {
	c := s.Cells
	c[cellMark], c[cellMarkMid], c[cellMarkLoad], c[cellAsked] = uint64(l), uint64(mid), c[cellLoad], 1
	idle := begun(s)
	below := (l + idle) / 2
	if c[cellTrust] == trusted {
		below = max((3*l+2*idle)/5, a.full(s, now, int64(c[cellLoad]))*int64(c[cellBase])/mid*4/5+idle)
	}
	a.set(s, min(below, l-slot))
}

// answer learns from the latency under a limit below the mark.
func (a *adaptive) answer(s State, now, mid, load, n int64) {
	c := s.Cells
	mark, markMid, markLoad, base := int64(c[cellMark]), int64(c[cellMarkMid]), int64(c[cellMarkLoad]), int64(c[cellBase])
	c[cellAsked] = 0
	ratio := load * 1024 / markLoad
	queue := mid*1024/markMid <= (1024+ratio)/2
	switch {
	case ratio > 950: // the load is about the same
	case queue && mid > base: // it has not ended yet
	case !queue && 4*mid > 5*base: // the upstream has changed, or the answer is wrong
		c[cellBase], c[cellTrust], c[cellPause] = uint64(mid), trusted-1, 0
	case c[cellTrust] < trusted:
		c[cellBase] = uint64(mid)
	default:
		c[cellBase] = uint64(max(base+(mid-base)*n/(n+200), 1))
	}
	if l := a.limit(s); queue && c[cellTrust] == 0 && l-slot >= a.min { // it begins further below
		c[cellMid], c[cellLoad] = uint64(mid), uint64(load)
		a.ask(s, now, l, mid)
		return
	}
	if 8*mid >= 7*base && 4*mid <= 5*base {
		c[cellTrust] = min(c[cellTrust]+1, trusted)
	}
	if c[cellTrust] == trusted {
		c[cellPause] = min(max(4*c[cellPause], firstPause, 4*c[cellMid]), max(longPause, 100*c[cellMid]))
	}
	c[cellProbe] = uint64(now) + c[cellPause]
	if queue {
		c[cellCeiling] = uint64(mark)
	}
	a.set(s, min(max(a.full(s, now, markLoad)*a.slowest(s)/markMid+begun(s), a.limit(s)), mark))
}

// average adds a window to the mean of those under about this limit, and returns their latency.
func (a *adaptive) average(s State, mid, load, n int64) int64 {
	c := s.Cells
	old, oldLoad, sure := int64(c[cellMid]), int64(c[cellLoad]), int64(c[cellSure])
	if sure == 0 || n >= 20 && (8*mid > 11*old || 11*mid < 8*old) { // or the upstream has changed
		old, oldLoad, sure = mid, load, 0
	}
	sure = min(sure+n, mostSure)
	c[cellSure] = uint64(sure)
	c[cellMid] = uint64(max(old+(mid-old)*n/sure, 1))
	c[cellLoad] = uint64(max(oldLoad+(load-oldLoad)*n/sure, 1))
	return int64(c[cellMid])
}

// use changes a limit that was used. mid is the latency under it, and rises that it did in the last window.
func (a *adaptive) use(s State, now, l, mid int64, rises bool) {
	c := s.Cells
	slowest, base, calm := a.slowest(s), int64(c[cellBase]), int64(c[cellCalm])
	refused, sure := c[cellRefused], c[cellSure]
	least := l-slot < a.min
	if least {
		c[cellTrust] = trusted // nothing can be asked
	}
	due := now >= int64(c[cellProbe]) || c[cellTrust] < trusted
	switch {
	case !least && due && sure >= 3*leastMeasured && 8*refused >= refused+c[cellEnded]:
		a.ask(s, now, l, mid)
	case mid <= slowest && (calm == 0 || mid*base <= slowest*calm*mostRise):
		c[cellGood]++
		a.set(s, l+max(l/32, slot/8)*growth(l, int64(c[cellCeiling]), int64(c[cellGood]), refused > 0))
		return
	case mid <= slowest || refused == 0 && 2*int64(c[cellLoad]) <= l-begun(s):
	case least: // what takes so long is no queue of this gateway
		c[cellBase] = uint64(base + max((mid-base)/8, 1))
	case 4*mid < 5*slowest:
		c[cellCeiling] = uint64(l)
		idle := min(begun(s), l)
		if l -= idle; refused > 0 {
			l = min(a.full(s, now, int64(c[cellLoad])), l)
		}
		a.set(s, l*slowest/mid+idle+a.limit(s)/32)
	case !rises && (sure >= 2*leastMeasured || mid > 2*slowest):
		a.ask(s, now, l, mid)
	}
	c[cellGood] = 0
}

// begun returns how many slots are held by answers that have begun, which no longer wait for the upstream.
func begun(s State) int64 { return max(int64(s.Head-s.Cells[cellAwaited]), 0) * slot }

// full returns the load of a limit whose slots are all used. Lower priorities leave slots free for higher ones.
func (a *adaptive) full(s State, now, load int64) int64 {
	active := 0
	for _, came := range s.Cells[cellCame : cellCame+bounds.MaxPriorities] {
		if came > 0 && now-int64(came) < activeFor {
			active++
		}
	}
	if active > 1 {
		load = load * 100 / (100 - a.keep)
	}
	return load
}

// growth returns by how many parts of 32 a limit grows after so many good windows in a row.
func growth(l, ceiling, good int64, refused bool) int64 {
	switch near := ceiling > 0 && l >= ceiling-ceiling/5; {
	case near: // slowly past the place where there was a queue
		good = (good - min(8, l/slot/2)) / 2
	case refused: // for nothing
		good = max(good, 3)
	}
	return 1 << min(max(good, 0), 4)
}
