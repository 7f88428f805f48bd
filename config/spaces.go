// SPDX-License-Identifier: MIT

package config

import (
	"regexp"
	"strings"
)

// The document from which Diana began prints its example without spaces after the colons:
//
//	Url:/
//	rules:
//	 - actor:device
//	   unit:second
//
// YAML reads these lines as text without keys. People copy the example, so Diana accepts keys of
// entries and rules without that space at the beginning of a line.
//
// This changes the meaning of no valid text. The reader first reads the text unchanged. Only if that
// fails, it adds the spaces to all such lines and reads again. If both fail, it reports the errors that
// explain more, see reader.betterThan. So "- queue:6379" in a cluster stays a host, although queue is
// a key.

var missingSpace = regexp.MustCompile(`^[ ]*(?:- +)*(?:[Uu]rl|rules|` + strings.Join(ruleKeys.names(), "|") + `):[^ \t]`)

// addSpaces returns text with the missing spaces, and the column of the added space in each line, so
// that messages have the columns of the original text.
func addSpaces(text string) (spaced string, added map[int]int) {
	added = map[int]int{}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if m := missingSpace.FindString(line); m != "" {
			colon := strings.IndexByte(m, ':') // all before it is ASCII: a byte is a column
			lines[i] = line[:colon+1] + " " + line[colon+1:]
			added[i+1] = colon + 2
		}
	}
	return strings.Join(lines, "\n"), added
}
