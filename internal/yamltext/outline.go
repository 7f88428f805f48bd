// SPDX-License-Identifier: MIT

package yamltext

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// The tree that the library makes of a text can need three hundred times the memory of the text. Its scanner
// even keeps the tokens of a whole collection in brackets. So the library never reads a large collection as a
// whole. An outline finds the large collections of a text. The library reads the text without their items,
// and a caller reads the items of a large collection in parts, see Text.Items.
//
//	limits: [{url: /a, rules: [...]}, {url: /b, rules: [...]}, ...]
//	        ^hole                                           ^cut
//
// The outline is no second parser: it knows brackets, quotes, comments, blocks of text and indentation, and
// nothing of values and messages. If it finds anything strange, it stops. The rest of the text belongs to the last
// part of each open collection. The library finds the mistake there, or must stop too: see Text.reader.

// How many marks a part has, and twice as many at most. A mark is a scalar or an indicator, such as a colon or a comma.
// A value has no more than two, so an alias can never stand for a collection that is read in parts.
const (
	InParts = 2 * maxAliased
	AsWhole = math.MaxInt // needs up to three hundred times the memory of the text
)

// The library keeps the tokens of collections in brackets and of keys until it has parsed them. It sees a missing comma
// only then. So the outline stops where too many tokens follow each other. A valid member of a collection in brackets has
// no more than "? &a !b key : &c !d value", and a value has an anchor and a tag.
const (
	maxMember = 16
	maxNames  = 4
)

// maxOpen is how many collections an outline follows inside each other. The library accepts fewer.
const maxOpen = 3 * maxDepth

// hole is a large collection.
type hole struct {
	kind       byte // '[' or '{' in brackets, '-' a list or ':' a mapping in lines
	indent     int  // column of the lines; of brackets: of the lines around them, -1: none
	begin, end int
	node       int   // where its node is: at its anchor, if it has one
	cuts       []int // where parts after the first begin: at an item, or in brackets at the comma before it
	items      int   // about as many
	closed     bool  // false: brackets without an end
	read       bool
}

// outline finds the large collections of t, in the order of their places. A part has about size marks.
func (t *Text) outline(size int) {
	o := outliner{text: t.text, size: size, after: indicator, named: -1, anchors: map[string]int{}, lost: -1}
	o.lines()
	t.stop, t.lost = min(o.pos, len(t.text)), o.lost // a backslash can be the last character
	for name := range o.anchors {
		if !o.hidden(name) {
			delete(o.anchors, name)
		}
	}
	t.hidden = o.anchors
	o.closeAll(len(t.text))
	slices.SortFunc(o.holes, func(a, b hole) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end))
	})
	t.holes = o.holes
}

// An outliner reads a text once, from its begin to its end. Its methods return false where they stop.
type outliner struct {
	text  string
	size  int
	pos   int
	open  []opened
	holes []hole
	after after
	named int // where an anchor or a tag of the next value is, or -1
	names int // anchors and tags since the last scalar, indicator or collection

	anchors map[string]int // where the last anchor with a name is, in this document
	lost    int            // where the first alias is whose anchor is hidden, or -1
}

// opened is a collection that has not ended yet.
type opened struct {
	hole
	last   int // where the last item begins, as in cuts
	marks  int // behind the last cut
	member int // tokens of the last item, if in brackets
}

// after says what was before a line or a token.
type after int

const (
	nothing   after = iota // in brackets: the begin of an item
	indicator              // a value must follow, or is empty
	plain                  // a scalar without quotes, which can go on
	complete               // a value that cannot go on
)

func (o *outliner) mark() {
	if n := len(o.open); n > 0 {
		o.open[n-1].marks++
		o.open[n-1].member++
	}
}

func (o *outliner) begin(kind byte, indent, at int) bool {
	h := hole{kind: kind, indent: indent, begin: at, node: at, items: 1}
	if o.named >= 0 {
		h.node = o.named
	}
	o.named, o.names = -1, 0
	o.open = append(o.open, opened{hole: h, last: at})
	return len(o.open) < maxOpen
}

// item notes that an item of the innermost collection begins, but not the first.
func (o *outliner) item(at int) {
	c := &o.open[len(o.open)-1]
	if c.marks >= o.size {
		c.cut(at)
	}
	c.items++
	c.last, c.member = at, 0
}

func (c *opened) cut(at int) {
	c.cuts = append(c.cuts, at)
	c.marks = 0
}

// end ends the innermost collection.
func (o *outliner) end(at int, closed bool) {
	n := len(o.open) - 1
	c := o.open[n]
	o.open = o.open[:n]
	if len(c.cuts) == 0 && c.marks >= o.size && c.last > c.begin { // so a small collection has fewer than size marks
		c.cut(c.last)
	}
	c.marks++
	if len(c.cuts) > 0 {
		c.end, c.closed = at, closed
		o.holes = append(o.holes, c.hole)
		c.marks = 1
	}
	if n > 0 {
		o.open[n-1].marks += c.marks
		o.open[n-1].member++
	}
}

func (o *outliner) closeAll(at int) {
	for len(o.open) > 0 {
		o.end(at, false)
	}
}

// indent returns the column of the innermost collection in lines, or -1.
func (o *outliner) indent() int {
	if n := len(o.open); n > 0 {
		return o.open[n-1].indent
	}
	return -1
}

// is reports whether the innermost collection has a kind and a column.
func (o *outliner) is(kind byte, column int) bool {
	n := len(o.open)
	return n > 0 && o.open[n-1].kind == kind && o.open[n-1].indent == column
}

// lines reads lines up to the end of the text.
func (o *outliner) lines() {
	for o.pos < len(o.text) {
		start := o.pos
		rest := o.text[start:]
		column := len(rest) - len(strings.TrimLeft(rest, " "))
		o.pos += column
		switch {
		case rest[0] == '%' && o.after == plain:
			return
		case isMarker(rest) || rest[0] == '%':
			o.closeAll(start)
			o.after, o.named = indicator, -1
			clear(o.anchors)
			if rest[0] != '-' {
				o.skipLine()
				continue
			}
			o.pos += len("---")
			if !o.value(false) || !o.lineEnds() {
				return
			}
			continue
		case o.blank():
			continue
		}
		dash := o.indicates('-')
		for o.indent() > column || o.is('-', column) && !dash {
			o.end(start, true)
			o.after = complete
		}
		if o.indent() < column && o.after == plain {
			if strings.Contains(o.skipLine(), " #") {
				o.after = complete
			}
			continue
		}
		if o.text[o.pos] == '\t' || o.indent() < column && o.after == complete || !o.node(column) || !o.lineEnds() {
			return
		}
	}
}

// isMarker reports whether a line begins or ends a document.
func isMarker(line string) bool {
	return (strings.HasPrefix(line, "---") || strings.HasPrefix(line, "...")) && (len(line) == 3 || isSpace(line[3]))
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// skipLine goes to the next line, and returns the rest of this one.
func (o *outliner) skipLine() string {
	line, _, found := strings.Cut(o.text[o.pos:], "\n")
	o.pos += len(line)
	if found {
		o.pos++
	}
	return line
}

// blank skips the rest of a line that has nothing more, or a comment. It reports whether it did.
func (o *outliner) blank() bool {
	rest := strings.TrimLeft(o.text[o.pos:], " \t")
	if rest == "" || rest[0] == '\n' {
		o.skipLine()
		return true
	}
	if rest[0] != '#' {
		return false
	}
	if o.after == plain {
		o.after = complete
	}
	o.skipLine()
	return true
}

// lineEnds is blank where a line may have ended already.
func (o *outliner) lineEnds() bool {
	return o.pos > 0 && o.text[o.pos-1] == '\n' || o.blank()
}

// word skips an anchor, an alias or a tag, up to one of some characters. A colon at the end of a name is strange.
func (o *outliner) word(ends string) bool {
	at := o.pos
	n := strings.IndexAny(o.text[at:], ends)
	if n < 0 {
		n = len(o.text) - at
	}
	o.pos += n
	name := o.text[at+1 : o.pos]
	if n := strings.IndexAny(name, ",[]{}"); n >= 0 {
		name = name[:n]
	}
	name = strings.TrimRight(name, ":")
	switch o.text[at] {
	case '&':
		if _, known := o.anchors[name]; known || len(o.anchors) < maxAnchored { // a text with more names is an error
			o.anchors[name] = at
		}
	case '*':
		if o.lost < 0 && o.hidden(name) {
			o.lost = at
		}
	}
	return o.text[at] == '!' || o.text[o.pos-1] != ':'
}

// hidden reports whether the last anchor with a name is inside a large collection that has ended. An alias would get
// no value, or that of an anchor before: the library does not read the two together.
func (o *outliner) hidden(name string) bool {
	at, found := o.anchors[name]
	for i := len(o.holes) - 1; found && i >= 0 && o.holes[i].end > at; i-- {
		if o.holes[i].begin <= at {
			return true
		}
	}
	return false
}

func (o *outliner) skipBlanks() {
	rest := o.text[o.pos:]
	o.pos += len(rest) - len(strings.TrimLeft(rest, " \t"))
}

func (o *outliner) atEnd() bool { return o.pos == len(o.text) || o.text[o.pos] == '\n' }

// indicates reports whether an indicator of lines is here: a character with a space behind it.
func (o *outliner) indicates(c byte) bool {
	return o.pos < len(o.text) && o.text[o.pos] == c && (o.pos+1 == len(o.text) || isSpace(o.text[o.pos+1]))
}

// node reads what a line has from a column on.
func (o *outliner) node(column int) bool {
	for {
		at, c := o.pos, o.text[o.pos]
		if !o.indicates(c) || c != '-' && c != '?' && c != ':' {
			return o.keyOrValue(column)
		}
		kind := byte(':')
		if c == '-' {
			kind = '-'
		}
		switch {
		case o.is(kind, column):
			if c != ':' {
				o.item(at)
			}
		case o.after != indicator || c == ':' || !o.begin(kind, column, at):
			return false
		}
		o.scalar()
		o.after = indicator
		o.pos++
		o.skipBlanks()
		if o.atEnd() || o.text[o.pos] == '#' {
			return true
		}
		column += o.pos - at
	}
}

// keyOrValue reads a key and the value behind it, or a value without a key.
func (o *outliner) keyOrValue(column int) bool {
	at, was, named := o.pos, o.after, o.named
	if !o.value(true) {
		return false
	}
	if !o.indicates(':') || strings.Contains(o.text[at:o.pos], "\n") {
		return was == indicator
	}
	o.named = named // what is on this line names the key
	switch {
	case o.is(':', column):
		o.item(at)
	case was != indicator || !o.begin(':', column, at):
		return false
	}
	o.named = -1
	o.mark()
	o.mark()
	o.pos++
	o.after = indicator
	return o.value(false)
}

// value reads a value that is no collection in lines. If it can be a key, it ends before a colon.
func (o *outliner) value(key bool) bool {
	for {
		o.skipBlanks()
		if o.atEnd() || o.text[o.pos] == '#' {
			return true
		}
		c := o.text[o.pos]
		if c != '&' && c != '!' {
			break
		}
		if !o.name() || !o.word(" \t\n") {
			return false
		}
	}
	rest := o.text[o.pos:]
	if rest[0] != '[' && rest[0] != '{' {
		o.scalar()
	}
	switch rest[0] {
	case '"', '\'':
		o.after = complete
		if !o.quoted() {
			return false
		}
		o.skipBlanks()
	case '[', '{':
		if !o.brackets() {
			return false
		}
		o.after = complete
		o.skipBlanks()
	case '*':
		o.after = complete
		if !o.word(" \t\n") {
			return false
		}
		o.skipBlanks()
	case '|', '>':
		o.after = complete
		if o.indent() < 0 { // the library even accepts lines between documents in it
			return false
		}
		o.skipLine()
		for o.pos < len(o.text) && o.inBlock() {
			o.skipLine()
		}
	default:
		o.after = plain
		line, _, _ := strings.Cut(rest, "\n")
		o.pos += o.plainEnd(line, key)
	}
	return true
}

// scalar notes a scalar or an indicator, which takes the anchor before it.
func (o *outliner) scalar() {
	o.mark()
	o.named, o.names = -1, 0
}

// name notes an anchor or a tag.
func (o *outliner) name() bool {
	o.mark()
	o.names++
	if o.named < 0 {
		o.named = o.pos
	}
	return o.names <= maxNames
}

// plainEnd returns where a scalar without quotes ends on its line.
func (o *outliner) plainEnd(line string, key bool) int {
	for i := range len(line) {
		switch {
		case line[i] == '#' && i > 0 && isSpace(line[i-1]):
			return i
		case key && line[i] == ':' && (i+1 == len(line) || isSpace(line[i+1])):
			return i
		}
	}
	return len(line)
}

// inBlock reports whether a line belongs to a block of text.
func (o *outliner) inBlock() bool {
	line := o.text[o.pos:]
	text := strings.TrimLeft(line, " ")
	return text == "" || text[0] == '\n' || len(line)-len(text) > o.indent()
}

// quoted skips a scalar in quotes.
func (o *outliner) quoted() bool {
	quote := o.text[o.pos]
	for o.pos++; o.pos < len(o.text); o.pos++ {
		rest := o.text[o.pos:]
		switch {
		case rest[0] == '\n' && isMarker(rest[1:]):
			return false
		case rest[0] == '\\' && quote == '"', quote == '\'' && strings.HasPrefix(rest, "''"):
			o.pos++
		case rest[0] == quote:
			o.pos++
			return true
		}
	}
	return false
}

// brackets reads a collection in brackets, with those inside.
func (o *outliner) brackets() bool {
	outside, indent := len(o.open), o.indent()
	for o.pos < len(o.text) {
		if n := len(o.open); n > outside && o.open[n-1].member > maxMember {
			return false
		}
		c := o.text[o.pos]
		switch {
		case c == '[' || c == '{':
			if !o.begin(c, indent, o.pos) {
				return false
			}
			o.after = nothing
		case c == ']' || c == '}':
			if o.open[len(o.open)-1].kind != c-2 { // in ASCII each bracket is two behind its counterpart
				return false
			}
			o.named = -1
			o.end(o.pos+1, true)
			if o.after = complete; len(o.open) == outside {
				o.pos++
				return true
			}
		case c == ',':
			if o.after == nothing {
				return false
			}
			o.item(o.pos)
			o.scalar()
			o.after = nothing
		case c == '\n' && isMarker(o.text[o.pos+1:]):
			return false
		case isSpace(c):
		case c == '#' && isSpace(o.text[o.pos-1]):
			if o.after == plain {
				o.after = complete
			}
			line, _, _ := strings.Cut(o.text[o.pos:], "\n")
			o.pos += len(line)
			continue
		case c == ':' && (o.after == complete || o.pos+1 == len(o.text) || strings.IndexByte(" \t\n,[]{}", o.text[o.pos+1]) >= 0),
			o.after <= indicator && o.indicates('?'):
			if o.after == nothing && c == ':' && !strings.HasPrefix(o.text[o.pos+1:], "}") {
				return false // whether the library accepts an empty key depends on what is around it
			}
			o.scalar()
			o.after = indicator
		case o.after == plain:
		case c == '"' || c == '\'':
			o.scalar()
			if !o.quoted() {
				return false
			}
			o.after = complete
			continue
		case c == '&' || c == '!':
			if !o.name() || !o.word(" \t\n,[]{}") {
				return false
			}
			if o.after == nothing {
				o.after = indicator
			}
			continue
		case c == '*':
			o.scalar()
			if !o.word(" \t\n,[]{}") {
				return false
			}
			o.after = complete
			continue
		default:
			o.scalar()
			o.after = plain
		}
		o.pos++
	}
	return false
}
