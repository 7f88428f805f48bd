// SPDX-License-Identifier: MIT

package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// The tree that the library makes of a text needs thirty times the memory of the text, and 8 MiB of it
// would also keep the garbage collector busy. So the reader divides a long list of entries at its items,
// and reads one part after another. The library reads the parts: here is no other parser.
//
// This changes the meaning of no valid text. A part begins where a line has "- " in the column of the
// list. If the library accepts all before that line as complete, no quote, bracket or block of text is
// open there, so the line begins an item of the list. If a part is not accepted, or has a mistake, the
// reader starts again and reads the text as a whole. So all messages are those of the whole text.

// partSize is the size of a part in bytes. A shorter text is not divided.
const partSize = 128 << 10

// part is some items of the list of entries, with the number of lines before them.
type part struct {
	text  string
	lines int
	items int // or more
}

// divide divides a text whose entries are the items of one list at its end. head is a text that has
// all before the list, and an empty list. If the text has another form, parts is empty.
func divide(text string, size int) (head string, parts []part) {
	if len(text) <= size {
		return "", nil
	}
	head, rest := "[]", text
	if !strings.HasPrefix(text, "- ") {
		before, list, found := strings.Cut("\n"+text, "\nlimits:\n")
		if !found {
			return "", nil
		}
		head, rest = strings.TrimPrefix(before+"\n", "\n")+"limits: []\n", list
	}
	// Documents and directives begin in the first column, also those in a text between quotes.
	for _, mark := range []string{"\n---", "\n...", "\n%"} {
		if strings.Contains(text, mark) {
			return "", nil
		}
	}
	for isComment(rest) {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	begin := strings.Repeat(" ", len(rest)-len(strings.TrimLeft(rest, " "))) + "- "
	if !strings.HasPrefix(rest, begin) {
		return "", nil
	}
	lines := strings.Count(text[:len(text)-len(rest)], "\n")
	for len(rest) > 0 {
		end := len(rest)
		if size < end {
			if at := strings.Index(rest[size-1:], "\n"+begin); at >= 0 {
				end = size + at
			}
		}
		parts = append(parts, part{rest[:end], lines, 1 + strings.Count(rest[:end], "\n"+begin)})
		lines += strings.Count(rest[:end], "\n")
		rest = rest[end:]
	}
	return head, parts
}

// isComment reports whether the first line of a text is empty or a comment.
func isComment(text string) bool {
	text = strings.TrimLeft(text, " ")
	return strings.HasPrefix(text, "\n") || strings.HasPrefix(text, "#")
}

// readPart reads the entries of a part. Any error makes the reader start again, so its text is empty.
func readPart(r *reader, p part) {
	documents := r.documents(p.text)
	if len(r.errs) > 0 || len(documents) != 1 || documents[0].Content[0].Kind != yaml.SequenceNode {
		r.failAt(1, 1, "")
		return
	}
	list := documents[0].Content[0]
	moveDown(list, p.lines)
	for _, e := range (value{r: r, form: entriesForm, node: list}).list() {
		readEntry(e)
	}
}

// moveDown adds to the line of each node. Two aliases have one node, which is moved once.
func moveDown(n *yaml.Node, lines int) {
	seen := map[*yaml.Node]bool{}
	var move func(n *yaml.Node)
	move = func(n *yaml.Node) {
		if n.Anchor != "" {
			if seen[n] {
				return
			}
			seen[n] = true
		}
		n.Line += lines
		for _, child := range n.Content {
			move(child)
		}
	}
	move(n)
}
