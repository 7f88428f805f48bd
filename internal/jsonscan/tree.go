// SPDX-License-Identifier: MIT

package jsonscan

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is what a document has at a pointer. The zero value means that it has nothing there.
type Value struct {
	Kind Kind
	Text []byte // the content of a String; a Number, a Bool or Null as the document writes it
	Cut  bool   // Text would be longer than the limit of the scanner, and is empty

	Folded bool // the key of the value matches only in another letter case; of NewFolding
}

// Kind is the type of a value.
type Kind uint8

// The kinds of values.
const (
	None Kind = iota // the document has no such value, or it has not arrived yet
	Null
	Bool
	Number
	String
	Container // an array or an object
)

// CheckPointer returns an error unless the text is a JSON pointer of RFC 6901. The error says what
// was expected.
func CheckPointer(text string) error {
	if text != "" && text[0] != '/' {
		return errors.New("expected a JSON pointer such as /usage/total_tokens")
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return errors.New("expected ~0 for ~ and ~1 for / in a JSON pointer")
		}
		rest = after
	}
}

// unescape returns the name that a part of a pointer stands for.
func unescape(part string) string {
	return strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
}

// tree has the parts of all pointers. Node 0 is the whole document. Pointers with the same
// beginning share its nodes.
type tree struct {
	nodes   []node
	asked   []int32 // the node of each pointer
	longest int     // bytes of the longest key
	levels  int     // parts of the longest pointer
	fold    bool    // keys match in any letter case
}

type node struct {
	name  string
	index int64 // the name as the index of an array, or -1
	child int32 // the first child, or 0
	next  int32 // the next child of the same parent, or 0
	asked bool  // a pointer ends here
	seen  bool  // the object has had this key
	value Value
}

func newTree(pointers []string, fold bool) tree {
	size := 1
	for _, p := range pointers {
		size += strings.Count(p, "/")
	}
	t := tree{nodes: make([]node, 1, size), asked: make([]int32, len(pointers)), fold: fold}
	for i, p := range pointers {
		at := int32(0)
		if p != "" {
			for part := range strings.SplitSeq(p[1:], "/") {
				at = t.add(at, unescape(part))
			}
		}
		t.asked[i], t.levels = at, max(t.levels, strings.Count(p, "/"))
		t.nodes[at].asked = true
	}
	if fold {
		t.longest *= utf8.UTFMax // another case of a letter may have more bytes
	}
	return t
}

// add returns the child of a node with a name, and makes it if there is none.
func (t *tree) add(parent int32, name string) int32 {
	if child := t.member(parent, []byte(name)); child >= 0 {
		return child
	}
	child := int32(len(t.nodes))
	t.nodes = append(t.nodes, node{name: name, index: parseIndex(name), next: t.nodes[parent].child})
	t.nodes[parent].child = child
	t.longest = max(t.longest, len(name))
	return child
}

// parseIndex returns the index of an array that a part of a pointer means, or -1.
func parseIndex(name string) int64 {
	if name == "" || name[0] < '0' || name[0] > '9' || name[0] == '0' && name != "0" {
		return -1
	}
	i, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return -1
	}
	return i
}

// member returns the child of a node for a key of an object, or -1.
func (t *tree) member(parent int32, name []byte) int32 {
	for i := t.nodes[parent].child; i > 0; i = t.nodes[i].next {
		if t.nodes[i].name == string(name) || t.fold && strings.EqualFold(t.nodes[i].name, string(name)) {
			return i
		}
	}
	return -1
}

// element returns the child of a node for an index of an array, or -1.
func (t *tree) element(parent int32, index int64) int32 {
	for i := t.nodes[parent].child; i > 0; i = t.nodes[i].next {
		if t.nodes[i].index == index {
			return i
		}
	}
	return -1
}

// clear forgets the values and keys at a node and below it. Its depth is that of a pointer.
func (t *tree) clear(at int32) {
	n := &t.nodes[at]
	n.seen, n.value = false, Value{Text: n.value.Text[:0]}
	for i := n.child; i > 0; i = t.nodes[i].next {
		t.clear(i)
	}
}
