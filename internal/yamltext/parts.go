// SPDX-License-Identifier: MIT

package yamltext

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// part is a text for the library: the whole without the items of large collections, or some items of one.
type part struct {
	text         string
	line, column int    // to add to lines, and to the columns of the first line
	from         [2]int // where it begins in the Text, as a line and a column; zero: it is the whole
	inside       bool   // the collection is the value of a key, so that the library knows how it is indented; false: of a document

	bracket int    // column of the bracket in text that begins the collection; 0: it has none
	begin   [2]int // where this bracket is in the Text
}

// part returns the nth part of a large collection.
func (t *Text) part(i, n int) part {
	h := &t.holes[i]
	from, to := h.begin, h.end
	if n > 0 {
		from = h.cuts[n-1]
	}
	last := n == len(h.cuts)
	if !last {
		to = h.cuts[n]
	}
	// In brackets, the library must not take the first bracket for the begin of a key: it would keep all tokens.
	start := t.places[from]
	before := strings.Repeat(" ", max(h.indent, 0))
	if !h.brackets() {
		return part{text: before + t.fill(from, to, i+1), line: start[0] - 1, column: start[1] - 1 - len(before), from: start}
	}
	p := part{line: start[0] - 1, from: start, inside: h.indent >= 0}
	if p.inside {
		before += "k: "
	} else {
		before = "--- "
	}
	p.begin = t.places[h.begin]
	p.bracket = len(before) + 1
	p.column = start[1] - p.bracket
	p.text = before + string(h.kind) + t.fill(from+1, to, i+1)
	if !last {
		p.text += string(h.kind + 2)
	}
	return p
}

// place returns a place in the Text.
func (p *part) place(line, column int) (int, int) {
	if line == 1 && p.bracket > 0 && column == p.bracket {
		return p.begin[0], p.begin[1]
	}
	if line <= 1 {
		column += p.column
	}
	return line + p.line, column
}

// fill returns a part of the text, with nothing but spaces and line ends in large collections from the ith on.
// So what is behind them keeps its place.
func (t *Text) fill(from, to, i int) string {
	var b strings.Builder
	pos := from
	for _, h := range t.holes[i:] {
		if h.begin >= to {
			break
		}
		if h.begin < pos {
			continue
		}
		if pos == from {
			b.Grow(to - from)
		}
		b.WriteString(t.text[pos:h.begin])
		inner := t.text[h.begin:h.end]
		_, first := utf8.DecodeRuneInString(inner)
		inner, pos = inner[first:], h.end
		switch {
		case h.kind == ':':
			b.WriteByte('?') // a key without a name
		case h.closed && h.brackets():
			b.WriteByte(h.kind)
			inner = inner[:len(inner)-1]
			pos--
		default:
			b.WriteByte(h.kind)
		}
		for _, c := range inner {
			if c != '\n' {
				c = ' '
			}
			b.WriteByte(byte(c))
		}
	}
	if pos == from {
		return t.text[from:to]
	}
	b.WriteString(t.text[pos:to])
	return b.String()
}

func (h *hole) brackets() bool { return h.kind == '[' || h.kind == '{' }

func (h *hole) yamlKind() yaml.Kind {
	if h.kind == '[' || h.kind == '-' {
		return yaml.SequenceNode
	}
	return yaml.MappingNode
}

// findPlaces finds the line and the column of each offset that is used, all in one go.
func (t *Text) findPlaces() {
	offsets := []int{t.stop, t.nearStop(), max(t.lost, 0)}
	for _, h := range t.holes {
		offsets = append(append(offsets, h.begin, h.node), h.cuts...)
	}
	slices.Sort(offsets)
	at, line, column := 0, 1, 1
	for _, offset := range offsets {
		passed := t.text[at:offset]
		if end := strings.LastIndexByte(passed, '\n'); end >= 0 {
			line, column, passed = line+strings.Count(passed, "\n"), 1, passed[end+1:]
		}
		column += utf8.RuneCountInString(passed)
		t.places[offset], at = [2]int{line, column}, offset
	}
}

// loading is the reading of one part. It is the plugin of the library that knows the anchors of all parts.
type loading struct {
	text   *Text
	part   part
	loader *yaml.Loader
	err    error
	own    map[string]*yaml.Node // anchors
	before map[string]*yaml.Node // anchors of other parts, if aliases have asked for them
}

// cut returns a part without what is far behind the place where the outline has stopped. The library may read some
// text there to find a mistake. If it finds none, it must not continue, because the rest of the text has no bound.
func (t *Text) cut(text string) (begin string, isCut bool) {
	if rest := t.text[t.stop:]; len(rest) > InParts && strings.HasSuffix(text, rest) {
		return text[:len(text)-len(rest)+InParts], true
	}
	return text, false
}

// nearStop returns an offset before which a mistake has nothing to do with the end of a text that was cut.
func (t *Text) nearStop() int { return min(t.stop+InParts/2, len(t.text)) }

// strange is a reader.
type strange struct{}

func (strange) Read([]byte) (int, error) { return 0, errStrange }

func (t *Text) load(p part) *loading {
	// The library reads YAML 1.2, but rejects a text that declares it.
	if strings.Contains(p.text, "%YAML 1.2") {
		p.text = strings.ReplaceAll("\n"+p.text, "\n%YAML 1.2", "\n%YAML 1.1")[1:]
	}
	l := &loading{text: t, part: p}
	begin, isCut := t.cut(p.text)
	if isCut {
		l.start(io.MultiReader(strings.NewReader(begin), strange{}))
	} else {
		l.start(strings.NewReader(begin))
	}
	return l
}

func (l *loading) start(r io.Reader) {
	l.loader, l.err = yaml.NewLoader(r, yaml.WithPlugin(loaderLimits{}), yaml.WithPlugin(l))
}

// nearMistake returns the error near the place where the outline has stopped, or nil. The scanner of the library can have
// wanted more tokens before its parser saw the mistake. So the text ends here, and the parser must look at them. The
// end can be in quotes.
func (l *loading) nearMistake() *yaml.LoadError {
	t := l.text
	begin, _ := t.cut(l.part.text)
	for _, quote := range []string{"", `"`, "'"} {
		again := &loading{text: t, part: l.part}
		again.start(strings.NewReader(begin + quote))
		var err error
		for err == nil {
			_, err = again.next()
		}
		var e *yaml.LoadError
		if errors.As(err, &e) {
			line, column := l.part.place(e.Mark.Line, e.Mark.Column)
			if isBefore(&yaml.Node{Line: line, Column: column}, t.places[t.nearStop()]) {
				return e
			}
		}
	}
	return nil
}

// next returns the next document, with its places in the Text.
func (l *loading) next() (d *yaml.Node, err error) {
	defer func() { // the library panics on what it takes for impossible
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if l.err != nil {
		return nil, l.err
	}
	d = new(yaml.Node)
	if err = l.loader.Load(d); err != nil {
		return nil, err
	}
	if l.part.line != 0 || l.part.column != 0 {
		l.part.move(d)
	}
	for name, n := range l.own {
		l.text.anchors[name] = append(l.text.anchors[name], n)
		l.text.anchored += count(n)
		if l.text.anchored > maxAnchored {
			return nil, tooMuchAnchored{n.Line, n.Column}
		}
	}
	return d, nil
}

// tooMuchAnchored is the place of an anchor that is one too many.
type tooMuchAnchored struct{ line, column int }

func (tooMuchAnchored) Error() string {
	return fmt.Sprintf("anchors stand for too much, expected at most %d values behind all of them", maxAnchored)
}

func isBefore(n *yaml.Node, place [2]int) bool {
	return n.Line < place[0] || n.Line == place[0] && n.Column < place[1]
}

// move gives a node and those inside the places that they have in the Text.
func (p *part) move(n *yaml.Node) {
	n.Line, n.Column = p.place(n.Line, n.Column)
	for _, child := range n.Content {
		p.move(child)
	}
}

// count returns how many values a value has, with itself.
func count(n *yaml.Node) int {
	sum := 1
	for _, child := range n.Content {
		sum += count(child)
	}
	return sum
}

func (l *loading) NewAliasDataContext(yaml.AliasDataServices) (yaml.AliasDataContext, error) {
	return l, nil
}

func (l *loading) BeginDocument() error {
	l.own, l.before = map[string]*yaml.Node{}, map[string]*yaml.Node{}
	if l.part.from[0] == 0 {
		clear(l.text.anchors)
	}
	return nil
}

func (l *loading) EndDocument() error { return nil }

func (l *loading) DefineAnchor(name string, n *yaml.Node) error {
	l.own[name] = n
	return nil
}

// ResolveAlias returns the last value with an anchor in this part, or else before it.
func (l *loading) ResolveAlias(name string) (n *yaml.Node, found bool, err error) {
	if n = l.own[name]; n != nil {
		return n, true, nil
	}
	n, found = l.before[name]
	if found {
		return n, n != nil, nil
	}
	for _, other := range l.text.anchors[name] {
		if isBefore(other, l.part.from) && (n == nil || isBefore(n, [2]int{other.Line, other.Column})) {
			n = other
		}
	}
	l.before[name] = n
	return n, n != nil, nil
}
