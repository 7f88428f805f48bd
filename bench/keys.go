// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// population is the actors of a workload and how often each of them asks. All who are
// measured draw from the same slice of strings, in the same order.
type population struct {
	keys  []string
	order []uint32 // drawn in advance; nil: all are equally likely
}

const million = 1_000_000

// names returns n keys.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("account-%07d", i)
	}
	return keys
}

var millionKeys = sync.OnceValue(func() []string { return names(million) })

func hotKey() *population { return &population{keys: millionKeys()[:1]} }

func uniform(keys []string) *population { return &population{keys: keys} }

// zipf is a population in which the k-th key is drawn in proportion to k to the power
// of -s. The draws are made in advance, so that drawing costs about what it costs from
// the others.
func zipf(keys []string, s float64) *population {
	sums := make([]float64, len(keys))
	sum := 0.0
	for i := range keys {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	random := rand.New(rand.NewPCG(1, 2))
	order := make([]uint32, 1<<20)
	for i := range order {
		at, _ := slices.BinarySearch(sums, random.Float64()*sum)
		order[i] = uint32(min(at, len(keys)-1))
	}
	return &population{keys: keys, order: order}
}

// stream is what one caller draws.
type stream struct {
	*population
	random rand.PCG
	at     int
}

// stream returns caller i's draws. They are the same whenever it is called.
func (p *population) stream(i int) *stream {
	s := &stream{population: p}
	s.random.Seed(uint64(i), 1)
	if len(p.order) > 0 {
		s.at = int(s.random.Uint64() % uint64(len(p.order)))
	}
	return s
}

func (s *stream) next() string {
	if s.order == nil {
		// The high half of a product is as good as a remainder, and cheaper.
		return s.keys[int(s.random.Uint64()>>32*uint64(len(s.keys))>>32)]
	}
	if s.at++; s.at >= len(s.order) {
		s.at = 0
	}
	return s.keys[s.order[s.at]]
}
