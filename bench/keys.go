// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

const million = 1_000_000

// names are keys, one behind the other in one text. A slice of strings would be more for the
// garbage collector to look at than all that is measured, and make it late.
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

// population is who asks in a workload, and how often each of them. It is drawn in
// advance and the keys lie in memory in the order in which they were drawn: a server has
// just read the key of a request, and does not fetch it from afar. All who are measured
// get the same draws.
type population struct{ drawn names }

// draws returns how many are drawn of n. Then they begin anew.
func draws(n int) []int { return make([]int, min(1<<20, 2*n)) }

// hotKey is one who asks all the time.
func hotKey() *population { return &population{namesOf([]int{0})} }

// uniform is n of whom all are equally likely to ask.
func uniform(n int) *population {
	random := rand.New(rand.NewPCG(1, 1))
	numbers := draws(n)
	for i := range numbers {
		numbers[i] = random.IntN(n)
	}
	return &population{namesOf(numbers)}
}

// zipf is n of whom the k-th asks in proportion to k to the power of -s.
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

// stream is what one caller draws.
type stream struct {
	drawn names
	at    int
}

// stream returns caller i's draws, which are the same whenever it is called.
func (p *population) stream(i int) *stream {
	return &stream{p.drawn, rand.New(rand.NewPCG(2, uint64(i))).IntN(p.drawn.len())}
}

func (s *stream) next() string {
	if s.at++; s.at >= s.drawn.len() {
		s.at = 0
	}
	return s.drawn.at(s.at)
}
