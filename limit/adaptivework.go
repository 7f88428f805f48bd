// SPDX-License-Identifier: MIT

package limit

// Within a priority, an adaptive limit refuses those clients first that cause much work. Work is the sum of the
// latencies of a client's requests, and half of it is forgotten every four seconds. A table of fixed size counts
// it, in each row under another column that the hash of the client chooses:
//
//	row 0  [ 3 | . | 9 | . | 1 | ... ]     The work of a client is the least of its four counts, because
//	row 1  [ . | 1 | . | . |12 | ... ]     others share each of them. Nobody can choose columns, because
//	row 2  [ 9 | . | 3 | 1 | . | ... ]     the caller salts the hash.
//
// A client is heavy if its work is more than one and a half of the mean of the columns that are in use. While
// requests are refused, heavy clients leave an eighth of the slots to the others, so these find one free.
// Without others, nobody is heavy. A client whose work is in progress counts with the latency of an
// unloaded upstream. A cell of the table counts the slots that the column holds too. A client that holds more than one
// and a half of the mean, and two, leaves that eighth at any time. So answers that never end, such as streams, hold no
// slot that the others need.
//
//	a cell  [ 16 bits: slots | 48: work in microseconds ]
//
// Source: the count-min sketch, as in the work queues of Kubernetes' API Priority and Fairness.
const (
	workRows    = 4
	workColumns = 64
	workBits    = 48
	mostWork    = 1<<workBits - 1
	mostHeld    = 1<<(64-workBits) - 1

	fadeEvery   = 4_000_000     // in which work is halved
	longestWork = 3_600_000_000 // a request counts as no more work than this
)

// advance returns the work that a request counts before its latency is known.
func advance(s State) int64 { return max(int64(s.Cells[cellBase]), 1) }

// addWork adds work and slots of a client, or takes back what was added before.
func addWork(s State, now int64, client uint64, work, slots int64) {
	if client == 0 {
		return
	}
	fade(s, now)
	for row := range uint64(workRows) {
		c := &s.Cells[cellWork+row*workColumns+column(client, row)]
		work := min(max(workOf(*c)+work, 0), mostWork)
		*c = uint64(min(max(slotsOf(*c)+slots, 0), mostHeld))<<workBits | uint64(work)
	}
}

func workOf(c uint64) int64  { return int64(c & mostWork) }
func slotsOf(c uint64) int64 { return int64(c >> workBits) }

// fade halves all work, once for each fadeEvery that has passed.
func fade(s State, now int64) {
	faded := int64(s.Cells[cellFaded])
	halvings := (now - faded) / fadeEvery
	if halvings <= 0 {
		return
	}
	for i := cellWork; i < cells; i++ {
		c := &s.Cells[i]
		*c = *c&^mostWork | *c&mostWork>>min(uint64(halvings), 63)
		if s.Head == 0 {
			*c &= mostWork // a process that ended may have released slots without saying whose
		}
	}
	s.Cells[cellFaded] = uint64(faded + halvings*fadeEvery)
}

// heavy reports whether a client causes more than one and a half of the mean work.
func heavy(s State, client uint64) bool { return above(s, client, workOf, 0) }

// crowds reports whether a client holds more than one and a half of the mean slots, and two.
func crowds(s State, client uint64) bool { return above(s, client, slotsOf, 2) }

// above reports whether what cells count of a client is more than one and a half of the mean, and an extra.
func above(s State, client uint64, of func(uint64) int64, extra int64) bool {
	if client == 0 {
		return false
	}
	own := int64(mostWork)
	for row := range uint64(workRows) {
		own = min(own, of(s.Cells[cellWork+row*workColumns+column(client, row)]))
	}
	sum, used := int64(0), int64(0)
	for _, c := range s.Cells[cellWork : cellWork+workColumns] {
		if n := of(c); n > 0 {
			sum, used = sum+n, used+1
		}
	}
	return used > 0 && own > sum*3/(used*2)+extra
}

func column(client, row uint64) uint64 { return client >> (row * 6) % workColumns }

// mix returns a number whose bits all depend on all bits of x. It is the end of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
