// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

const million = 1_000_000

// names holds keys one after another in one text. With a slice of strings the garbage collector
// would mostly scan the keys.
type names string

const nameLength = len("account-00000000")

// all returns n keys.
func all(n int) names {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return namesOf(numbers)
}

func namesOf(numbers []int) names {
	text := make([]byte, 0, len(numbers)*nameLength)
	for _, n := range numbers {
		text = fmt.Appendf(text, "account-%08d", n)
	}
	return names(text)
}

func (n names) len() int { return len(n) / nameLength }

func (n names) at(i int) string { return string(n[i*nameLength : (i+1)*nameLength]) }

// population holds the keys of a workload in the order of the requests. They are drawn in advance
// and lie in memory in that order, because a server has just read the key of a request and finds
// it in its caches. All systems get the same draws.
type population struct{ drawn names }

// draws returns room for the draws from n keys. A stream repeats them.
func draws(n int) []int { return make([]int, min(1<<20, 2*n)) }

// hotKey is a single key.
func hotKey() *population { return &population{namesOf([]int{0})} }

// uniform draws each of n keys with the same probability.
func uniform(n int) *population {
	random := rand.New(rand.NewPCG(1, 1))
	numbers := draws(n)
	for i := range numbers {
		numbers[i] = random.IntN(n)
	}
	return &population{namesOf(numbers)}
}

// zipf draws the k-th of n keys in proportion to k to the power of -s.
func zipf(n int, s float64) *population {
	sums, sum := make([]float64, n), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	random := rand.New(rand.NewPCG(1, 2))
	numbers := draws(n)
	for i := range numbers {
		at, _ := slices.BinarySearch(sums, random.Float64()*sum)
		numbers[i] = min(at, n-1)
	}
	return &population{namesOf(numbers)}
}

// stream holds the draws of one caller.
type stream struct {
	drawn names
	at    int
}

// stream returns the draws of caller i, which are always the same.
func (p *population) stream(i int) *stream {
	return &stream{p.drawn, rand.New(rand.NewPCG(2, uint64(i))).IntN(p.drawn.len())}
}

func (s *stream) next() string {
	if s.at++; s.at >= s.drawn.len() {
		s.at = 0
	}
	return s.drawn.at(s.at)
}
