// SPDX-License-Identifier: MIT

package config

import (
	"regexp"
	"strings"
)

// The document that Diana began from prints its example without a space behind the
// colons:
//
//	Url:/
//	rules:
//	 - actor:device
//	   unit:second
//
// To YAML these lines are no keys but text. People copy the example, so they mean
// what they look like: the keys of entries and rules may lack that space where they
// begin a line.
//
// No text that is good without this changes its meaning by it. A text is first read
// as it stands. Only if that fails is it read again with the spaces added, to all such
// lines, and of two failures the one that explains more is reported, see
// reader.betterThan. That is why "- queue:6379" in a cluster stays a host though queue
// is a key.

var missingSpace = regexp.MustCompile(`^[ ]*(?:- +)*(?:[Uu]rl|rules|` + strings.Join(ruleKeys.names(), "|") + `):[^ \t]`)

// addSpaces returns text with the missing spaces added, and the column of the one
// that was added to each line, so that messages can tell columns as they were written.
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
