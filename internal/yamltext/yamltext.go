// SPDX-License-Identifier: MIT

// Package yamltext reads the syntax of texts in YAML, and phrases what messages about them have in
// common. It knows no key and no form of values.
package yamltext

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A real configuration stays far below these bounds. They limit the cost of a hostile text.
const (
	maxDepth    = 32     // collections inside each other
	maxAliased  = 10_000 // values that are read through aliases, all together
	maxAnchored = 20_000 // values that have anchors, or are inside of values that have, all together
)

// Mistake is a mistake at its place.
type Mistake struct {
	Line, Column int // from 1; columns count characters
	Message      string
}

func (m Mistake) before(line, column int) bool {
	return m.Line < line || m.Line == line && m.Column < column
}

// Text is a text in YAML.
type Text struct {
	// Mistakes are the mistakes in the syntax of what was read.
	Mistakes []Mistake

	// Broken reports whether such a mistake hides the structure of the text.
	Broken bool

	// Unread is a mistake at a large collection that nobody has read, or nil. All of a valid text is read, so the
	// outline was wrong there.
	Unread *Mistake

	text    string
	starts  []uint32 // of lines
	holes   []hole
	stop    int               // where the outline stopped; the end of the text if it did not
	places  map[int][2]int    // lines and columns of offsets in holes, and of stop
	at      map[beginning]int // numbers of holes
	anchors map[string][]*yaml.Node
	lost    int            // where the first alias is that cannot get its value, or -1; as far as the outline goes
	hidden  map[string]int // names whose last anchor before stop is hidden there, see outliner.hidden

	anchored, aliased int // values that have anchors or are inside of those, and values that were read through aliases
}

// beginning is where a collection begins. A mapping in lines can begin where its first key begins, in brackets.
type beginning struct {
	line, column int
	brackets     bool
}

// New returns a Text that has line feeds as line ends, as Decode returns it. A collection with size marks or more
// is read in parts: its node has no items, and Items reads them. size is InParts, or AsWhole for a caller that needs
// a tree.
func New(text string, size int) *Text {
	t := &Text{
		text: text, starts: make([]uint32, 1, strings.Count(text, "\n")+1), stop: len(text),
		places: map[int][2]int{}, at: map[beginning]int{}, anchors: map[string][]*yaml.Node{}, lost: -1,
	}
	for i := range len(text) {
		if text[i] == '\n' {
			t.starts = append(t.starts, uint32(i+1))
		}
	}
	if size <= len(text) {
		t.outline(size)
	}
	t.findPlaces()
	for i := range t.holes {
		place := t.places[t.holes[i].node]
		t.at[beginning{place[0], place[1], t.holes[i].brackets()}] = i
	}
	return t
}

// Documents yields the documents of t without aliases. It ends at a mistake that hides the structure, and the
// document in which it is can have been yielded before.
func (t *Text) Documents() iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		if line := lineOf(t.text, "%TAG"); line > 0 { // in the library their number counts squared
			t.Broken = true
			t.failAt(line, 1, "tags mean nothing here, expected none to be declared")
			return
		}
		if t.lost >= 0 {
			t.Broken = true
			t.failAt(t.places[t.lost][0], t.places[t.lost][1], lostAnchor)
			return
		}
		l := t.load(part{text: t.fill(0, len(t.text), 0)})
		for {
			d, err := l.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.broken(l.mistake(err))
				return
			}
			if !t.expand(d, false) || !yield(d) || t.Broken {
				return
			}
		}
		for i := range t.holes {
			if place := t.places[t.holes[i].begin]; !t.holes[i].read {
				t.Unread = &Mistake{place[0], place[1], errStrange.Error()}
				break
			}
		}
		t.checkUnread()
	}
}

// broken reports a mistake that hides the structure, or one in a large collection before.
func (t *Text) broken(m Mistake) {
	t.checkUnread()
	if t.Broken && !m.before(t.Mistakes[len(t.Mistakes)-1].Line, t.Mistakes[len(t.Mistakes)-1].Column) {
		return
	}
	if t.Broken {
		t.Mistakes = t.Mistakes[:len(t.Mistakes)-1]
	}
	t.Broken = true
	t.Mistakes = append(t.Mistakes, m)
}

// checkUnread finds mistakes in large collections that nobody has read.
func (t *Text) checkUnread() {
	for i := range t.holes {
		for n := 0; !t.Broken && !t.holes[i].read && n <= len(t.holes[i].cuts); n++ {
			t.items(i, n)
		}
		t.holes[i].read = true
	}
}

// Items yields the items of a list, or the keys of a mapping with their values. It is an iterator itself, so a
// small collection costs no memory.
func (t *Text) Items(n *yaml.Node, yield func(*yaml.Node) bool) {
	i, large := t.hole(n)
	if !large {
		for _, item := range n.Content {
			if !yield(item) {
				return
			}
		}
		return
	}
	t.holes[i].read = true
	for part := 0; part <= len(t.holes[i].cuts) && !t.Broken; part++ {
		for _, item := range t.items(i, part) {
			if !yield(item) || t.Broken {
				return
			}
		}
	}
}

// Len returns how many items a list has. Of a large one it returns how many it may have.
func (t *Text) Len(n *yaml.Node) int {
	if i, large := t.hole(n); large {
		return t.holes[i].items
	}
	return len(n.Content)
}

// hole returns the number of a large collection.
func (t *Text) hole(n *yaml.Node) (i int, large bool) {
	if len(t.holes) == 0 {
		return 0, false
	}
	i, large = t.at[beginning{n.Line, n.Column, n.Style&yaml.FlowStyle != 0}]
	if large && len(n.Content) > 0 {
		if key := n.Content[0]; key.Kind == n.Kind && key.Line == n.Line && key.Column == n.Column {
			return 0, false // the pair of [{a: b}: c] begins where its key does
		}
	}
	return i, large && n.Kind == t.holes[i].yamlKind()
}

// items returns the items in a part of a large collection.
func (t *Text) items(i, n int) []*yaml.Node {
	l := t.load(t.part(i, n))
	d, err := l.next()
	if err == nil {
		if _, err = l.next(); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		t.Broken = true
		t.Mistakes = append(t.Mistakes, l.mistake(err))
		return nil
	}
	found := d.Content[0]
	if l.part.inside {
		found = found.Content[1]
	}
	if !t.expand(found, false) {
		t.Broken = true
		return nil
	}
	return found.Content
}

// lineOf returns the number of the first line that begins with a word, or 0.
func lineOf(text, word string) int {
	if strings.HasPrefix(text, word) {
		return 1
	}
	before, _, found := strings.Cut(text, "\n"+word)
	if !found {
		return 0
	}
	return strings.Count(before, "\n") + 2
}

// loaderLimits is a yaml.LoaderLimitsPlugin.
type loaderLimits struct{}

func (loaderLimits) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return errTooDeep
	}
	return nil
}

func (loaderLimits) CheckAlias(int, int) error { return nil } // see expand

var errStrange = errors.New("expected simpler YAML, because a text of this size is read in parts")

var errTooDeep = fmt.Errorf("expected at most %d mappings and lists inside each other", maxDepth)

var lostAnchor = fmt.Sprintf("expected the anchor of this alias outside of lists and mappings that end before it and have more than %d scalars and marks", InParts)

// expand replaces the aliases below n by their values, and reports tags. It counts the values behind
// aliases. It returns false if there are too many, for example in an alias that contains itself.
func (t *Text) expand(n *yaml.Node, inAlias bool) bool {
	if n.Style&yaml.TaggedStyle != 0 || n.Tag == "!" {
		t.failAt(n.Line, n.Column, "tags mean nothing here, expected the value without one")
		n.Style &^= yaml.TaggedStyle
		n.Tag = ""
	}
	for i, child := range n.Content {
		alias, through := child, inAlias
		if child.Kind == yaml.AliasNode {
			if _, hidden := t.hidden[child.Value]; hidden && !isBefore(child, t.places[t.stop]) && isBefore(child.Alias, t.places[t.stop]) {
				t.failAt(child.Line, child.Column, lostAnchor)
				return false
			}
			child, through = child.Alias, true
			n.Content[i] = child
		}
		if through {
			t.aliased++
			if _, large := t.hole(child); large {
				t.aliased += maxAliased
			}
		}
		if t.aliased > maxAliased {
			t.failAt(alias.Line, alias.Column, fmt.Sprintf("aliases stand for too much, expected at most %d values behind all of them", maxAliased))
			return false
		}
		if !t.expand(child, through) {
			return false
		}
	}
	return true
}

// syntaxMessages translates the messages of the library into the words of an author. The first row whose
// first column is part of "context: message" counts.
var syntaxMessages = []struct{ says, means string }{
	{errTooDeep.Error(), errTooDeep.Error()},
	{"a tab character", noTabs},
	{"unknown anchor", "expected an anchor of this name before its alias"},
	{"an anchor", "expected a name of letters and digits behind &, or quotes around the value"},
	{"an alias", "expected a name of letters and digits behind *, or quotes around the value"},
	{"tag", "tags mean nothing here, expected the value without one"},
	{"directive", "expected %YAML 1.2, or no line that begins with %"},
	{"incompatible YAML document", "expected %YAML 1.2, or no line that begins with %"},
	{"unexpected end of stream", "expected a quote that ends this text"},
	{"unexpected document indicator", "expected a quote that ends this text"},
	{"a quoted scalar", `expected an escape that YAML knows, or \\ for a backslash`},
	{"a block scalar", "expected the text of this block on the lines below it, indented"},
	{"cannot start any token", "expected quotes around a value that begins with this character"},
	{"mapping values are not allowed", "expected keys that are indented alike, with a space behind each colon, or quotes around a value with a colon"},
	{"mapping keys are not allowed", `expected quotes around a value that begins with "? "`},
	{"block sequence entries are not allowed", `expected "- " on a line of its own, or quotes around a value that begins with it`},
	{"expected ','", "expected a comma, or the bracket that closes this one"},
	{"expected node content", "expected a value"},
	{"expected ':'", "expected a colon and a space behind this key"},
	{"expected key", "expected a key, indented like the others of this mapping"},
	{"expected '-'", `expected "- ", indented like the others of this list`},
	{"<document start>", "expected the indentation of the lines before, or --- for a new document"},
	{"document-end marker", "expected nothing behind ... on its line"},
	{"a comment without", "expected a space before #"},
}

const noTabs = "a tab cannot indent, expected spaces"

// mistake returns an error in the YAML syntax as a mistake in t.
func (l *loading) mistake(err error) Mistake {
	t := l.text
	var much tooMuchAnchored
	if errors.As(err, &much) {
		return Mistake{much.line, much.column, much.Error()}
	}
	var e *yaml.LoadError
	if strings.Contains(err.Error(), errStrange.Error()) { // the library does not wrap it
		if e = l.nearMistake(); e == nil {
			return Mistake{t.places[t.stop][0], t.places[t.stop][1], errStrange.Error() + "; a bracket, comma or quote may be missing"}
		}
	} else if !errors.As(err, &e) {
		line, column := l.part.place(1, 1)
		return Mistake{line, column, fmt.Sprintf("not valid YAML: %v", err)}
	}
	contextLine, contextColumn := l.part.place(e.ContextMark.Line, e.ContextMark.Column)
	message := "not valid YAML: " + e.Message
	for _, m := range syntaxMessages {
		if strings.Contains(e.ContextMsg+": "+e.Message, m.says) {
			message = m.means
			break
		}
	}
	line, column := l.part.place(e.Mark.Line, e.Mark.Column)
	before, after := t.Around(line, column)
	indentation := before + after
	indentation = indentation[:len(indentation)-len(strings.TrimLeft(indentation, " \t"))]
	tab := strings.IndexByte(indentation, '\t')
	switch {
	case tab >= 0:
		column, message = tab+1, noTabs
	case strings.HasSuffix(e.Message, "expected ':'"), strings.Contains(e.Message, "unexpected"), strings.Contains(e.ContextMsg, "directive"):
		// The beginning of the construct is a better place than the point where parsing failed.
		line, column = contextLine, contextColumn
	case strings.HasSuffix(e.Message, "expected key") || strings.HasSuffix(e.Message, "expected '-' indicator"):
		if strings.Trim(before, " -") != "" {
			message = "expected the end of the line behind this value"
		}
	case strings.Contains(e.Message, "expected ','"):
		message += fmt.Sprintf(", in line %d", contextLine)
	}
	return Mistake{line, column, message}
}

// Around returns the parts of a line before and from a column.
func (t *Text) Around(line, column int) (before, after string) {
	if line < 1 || line > len(t.starts) {
		return "", ""
	}
	text := t.text[t.starts[line-1]:]
	if line < len(t.starts) {
		text = t.text[t.starts[line-1] : t.starts[line]-1]
	}
	for i := range text {
		if column--; column < 1 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

func (t *Text) failAt(line, column int, message string) {
	t.Mistakes = append(t.Mistakes, Mistake{line, column, message})
}
