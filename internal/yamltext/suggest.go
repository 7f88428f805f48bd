// SPDX-License-Identifier: MIT

package yamltext

import (
	"strconv"
	"strings"
)

// DidYouMean returns a question with the word that the author probably meant. It returns "" if no word
// is near, or if word is one of them.
func DidYouMean(word string, words []string) string {
	if near := Nearest(word, words); near != "" && near != word {
		return " (did you mean " + near + "?)"
	}
	return ""
}

// Nearest returns the word nearest to word. It ignores letter case, and allows one edit if word has two
// to four letters, or two edits if it has more.
func Nearest(word string, words []string) string {
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

// Join lists words: "a, b or c".
func Join(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Hidden is what messages show instead of a text that Quote hides.
const Hidden = "a text that may hold a password"

// Quote returns a text in the form for messages. It hides a text that may contain a password. Such a
// text looks like a URL, like a user before a host, or like the key of a password without a space
// after its colon.
func Quote(s string) string {
	if strings.Contains(s, "://") || strings.Contains(s, "@") || strings.Contains(s, "password:") {
		return Hidden
	}
	return strconv.Quote(Shorten(s))
}

// longestShown is the largest number of characters of a text that a message shows.
const longestShown = 60

// Shorten returns the beginning of a text that is too long for a message.
func Shorten(s string) string {
	n := 0
	for i := range s {
		if n++; n > longestShown {
			return s[:i] + "..."
		}
	}
	return s
}
