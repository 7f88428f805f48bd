// SPDX-License-Identifier: MIT

package measure

import (
	"fmt"
	"math/rand/v2"
)

// Million is a number of keys.
const Million = 1_000_000

// Names holds keys one after another in one text, because with a slice of strings the garbage collector would
// mostly scan the keys. The keys of a workload are drawn in advance and lie in memory in the order of the
// requests. A server has just read the key of a request and finds it in its caches. All systems get the same
// draws.
type Names string

const nameLength = len("account-00000000")

// AllKeys returns n keys.
func AllKeys(n int) Names { return namesOf(n, func(i int) int { return i }) }

// HotKey is a single key.
func HotKey() Names { return AllKeys(1) }

// Uniform draws each of n keys with the same probability.
func Uniform(n int) Names {
	random := rand.New(rand.NewPCG(1, 1))
	return namesOf(min(1<<20, 2*n), func(int) int { return random.IntN(n) })
}

func namesOf(n int, number func(i int) int) Names {
	text := make([]byte, 0, n*nameLength)
	for i := range n {
		text = fmt.Appendf(text, "account-%08d", number(i))
	}
	return Names(text)
}

// Len returns the number of keys.
func (n Names) Len() int { return len(n) / nameLength }

// At returns a key.
func (n Names) At(i int) string { return string(n[i*nameLength : (i+1)*nameLength]) }

// Stream returns what returns the keys of caller i one after another, again and again. They are always the
// same.
func (n Names) Stream(i int) (next func() string) {
	at := rand.New(rand.NewPCG(2, uint64(i))).IntN(n.Len())
	return func() string {
		if at++; at >= n.Len() {
			at = 0
		}
		return n.At(at)
	}
}
