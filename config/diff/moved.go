// SPDX-License-Identifier: MIT

package diff

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/diana-limiter/diana/rule"
)

// movedEntries returns, for each entry of now, a line if its place among the entries in both
// configurations changed.
func movedEntries(old, now []rule.Entry) []string {
	place := make(map[string]int, len(old))
	for i, e := range old {
		place[e.URL.Same()] = i
	}
	var both, places []int
	for i, e := range now {
		if p, ok := place[e.URL.Same()]; ok {
			both, places = append(both, i), append(places, p)
		}
	}
	moved := make([]string, len(now))
	stays := longestRise(places)
	for j, i := range both {
		if !stays[j] {
			moved[i] = "entry " + legible(now[i].URL.String()) + " moved to the front"
			if i > 0 {
				moved[i] = fmt.Sprintf("entry %s moved behind %s", legible(now[i].URL.String()), legible(now[i-1].URL.String()))
			}
		}
	}
	return moved
}

// movedRules returns, for each rule of now, a text if its place among the rules in both versions of
// its entry changed. A rule in another entry has another url instead.
func movedRules(old, now []*placedRule) []string {
	place := make(map[*placedRule]int, len(old))
	for i, r := range old {
		place[r] = i
	}
	moved := make([]string, len(now))
	for first := 0; first < len(now); {
		entry := now[first].entry
		var both, places []int
		next := first
		for ; next < len(now) && now[next].entry == entry; next++ {
			if p := now[next].partner; p != nil && p.url.Same() == now[next].url.Same() {
				both, places = append(both, next), append(places, place[p])
			}
		}
		stays := longestRise(places)
		for j, i := range both {
			switch {
			case stays[j]:
			case i == first:
				moved[i] = "moved to the front"
			default:
				moved[i] = fmt.Sprintf("moved behind %q", now[i-1].name)
			}
		}
		first = next
	}
	return moved
}

// longestRise reports which numbers belong to a longest rising subsequence. Everything outside of it
// has moved, so this counts the fewest moves.
func longestRise(numbers []int) []bool {
	var ends []int // by length minus one: the end of the sequence with the lowest end
	before := make([]int, len(numbers))
	for i, n := range numbers {
		length, _ := slices.BinarySearchFunc(ends, n, func(end, n int) int { return cmp.Compare(numbers[end], n) })
		before[i] = -1
		if length > 0 {
			before[i] = ends[length-1]
		}
		if length == len(ends) {
			ends = append(ends, i)
		}
		ends[length] = i
	}
	rising := make([]bool, len(numbers))
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = before[i] {
			rising[i] = true
		}
	}
	return rising
}
