// SPDX-License-Identifier: MIT

package config

import "strings"

// didYouMean returns a question with the word that the author probably meant. It returns "" if no word
// is near, or if word is one of them.
func didYouMean(word string, words []string) string {
	if near := nearest(word, words); near != "" && near != word {
		return ", did you mean " + near + "?"
	}
	return ""
}

// nearest returns the word nearest to word. It ignores letter case, and allows one edit if word has two
// to four letters, or two edits if it has more.
func nearest(word string, words []string) string {
	least, found := 2, ""
	switch {
	case len(word) < 2:
		least = 1
	case len(word) > 4:
		least = 3
	}
	for _, w := range words {
		if len(w)-len(word) >= least || len(word)-len(w) >= least {
			continue
		}
		if n := edits(strings.ToLower(word), strings.ToLower(w)); n < least {
			least, found = n, w
		}
	}
	return found
}

// edits returns how many letters must be added, dropped, changed or swapped with the next one to turn
// a into b.
func edits(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// join lists words: "a, b or c".
func join(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}
