// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// seed makes the random spellings the same in each run.
const seed = 12

// random yields n protected paths with two to six random edits each.
func random(n int) iter.Seq[string] {
	r := rand.New(rand.NewPCG(seed, seed))
	targets := []string{"/admin", "/admin", "/admin/x", "/a/b/secret", "/api/7/secret", "/x/../admin", "/x/y/../../admin", "/x%2fy/../../admin", "//x/admin"}
	return func(yield func(string) bool) {
		for range n {
			path := targets[r.IntN(len(targets))]
			for range 2 + r.IntN(5) {
				path = edited(r, path)
			}
			if !yield(path) {
				return
			}
		}
	}
}

// pieces are what an edit inserts.
var pieces = slices.Concat(slashes, ups, heres, fronts, []string{"x", "x", "/x", "/x/..", "/..", "/..", "admin", "/admin", "base", ";", ".", " ", "%"})

// edited returns path with one random change.
func edited(r *rand.Rand, path string) string {
	i := r.IntN(len(path) + 1)
	if i == len(path) || r.IntN(5) < 3 {
		return path[:i] + pieces[r.IntN(len(pieces))] + path[i:]
	}
	before, c, after := path[:i], path[i], path[i+1:]
	switch r.IntN(6) {
	case 0:
		return before + fmt.Sprintf("%%%02X", c) + after
	case 1:
		return before + fmt.Sprintf("%%25%02x", c) + after
	case 2:
		return before + string(rune(c^0x20)) + after // the other letter case
	case 3:
		return before + fmt.Sprintf("%%%02x", r.IntN(256)) + string(c) + after
	case 4:
		return before + string(c) + string(c) + after
	}
	return before + fmt.Sprintf("%%%02x", c) + after
}
