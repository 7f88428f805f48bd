// SPDX-License-Identifier: MIT

// Package yamltext reads the syntax of texts in YAML, and phrases what messages about them have in
// common. It knows no key and no form of values.
package yamltext

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A real configuration stays far below these bounds. They limit the cost of a hostile text.
const (
	maxDepth   = 32     // collections inside each other
	maxAliased = 10_000 // values that are read through aliases, all together
)

// Mistake is a mistake at its place.
type Mistake struct {
	Line, Column int // from 1; columns count characters
	Message      string
}

// Text is a text in YAML.
type Text struct {
	// Mistakes are the mistakes in the syntax of the documents that were read.
	Mistakes []Mistake

	// Broken reports whether such a mistake hides the structure of the text.
	Broken bool

	lines   []string
	aliased int // values that were read through aliases
}

// New returns a Text. text has line feeds as line ends, as Decode returns it.
func New(text string) *Text { return &Text{lines: strings.Split(text, "\n")} }

// Documents returns the documents of text without aliases. text is t, or a part of it. If there is a
// mistake, Documents returns the documents before it.
func (t *Text) Documents(text string) []*yaml.Node {
	if line := lineOf(text, "%TAG"); line > 0 { // in the library their number counts squared
		t.Broken = true
		t.failAt(line, 1, "tags mean nothing here, expected none to be declared")
		return nil
	}
	// The library reads YAML 1.2, but rejects a text that declares it.
	if strings.Contains(text, "%YAML 1.2") {
		text = strings.ReplaceAll("\n"+text, "\n%YAML 1.2", "\n%YAML 1.1")[1:]
	}
	documents, err := load(text)
	if err != nil {
		t.Broken = true
		t.syntaxError(err)
	}
	for i, d := range documents {
		if !t.expand(d, false) {
			return documents[:i]
		}
	}
	return documents
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

// load returns the documents up to the first mistake of syntax.
func load(text string) (documents []*yaml.Node, err error) {
	defer func() { // the library panics on what it takes for impossible
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	loader, err := yaml.NewLoader(strings.NewReader(text), yaml.WithPlugin(loaderLimits{}))
	for err == nil {
		d := new(yaml.Node)
		if err = loader.Load(d); err == nil {
			documents = append(documents, d)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return documents, err
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

var errTooDeep = fmt.Errorf("expected at most %d mappings and lists inside each other", maxDepth)

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
			child, through = child.Alias, true
			n.Content[i] = child
		}
		if through {
			t.aliased++
		}
		if t.aliased > maxAliased {
			t.failAt(alias.Line, alias.Column, "aliases stand for too much, expected at most %d values behind all of them", maxAliased)
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

// syntaxError reports an error in the YAML syntax.
func (t *Text) syntaxError(err error) {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		t.failAt(1, 1, "not valid YAML: %v", err)
		return
	}
	message := "not valid YAML: " + e.Message
	for _, m := range syntaxMessages {
		if strings.Contains(e.ContextMsg+": "+e.Message, m.says) {
			message = m.means
			break
		}
	}
	line, column := e.Mark.Line, e.Mark.Column
	before, after := t.Around(line, column)
	indentation := before + after
	indentation = indentation[:len(indentation)-len(strings.TrimLeft(indentation, " \t"))]
	tab := strings.IndexByte(indentation, '\t')
	switch {
	case tab >= 0:
		column, message = tab+1, noTabs
	case strings.HasSuffix(e.Message, "expected ':'"), strings.Contains(e.Message, "unexpected"), strings.Contains(e.ContextMsg, "directive"):
		// The beginning of the construct is a better place than the point where parsing failed.
		line, column = e.ContextMark.Line, e.ContextMark.Column
	case strings.HasSuffix(e.Message, "expected key") || strings.HasSuffix(e.Message, "expected '-' indicator"):
		if strings.Trim(before, " -") != "" {
			message = "expected the end of the line behind this value"
		}
	case strings.Contains(e.Message, "expected ','"):
		message += fmt.Sprintf(", in line %d", e.ContextMark.Line)
	}
	t.failAt(line, column, "%s", message)
}

// Around returns the parts of a line before and from a column.
func (t *Text) Around(line, column int) (before, after string) {
	if line > len(t.lines) {
		return "", ""
	}
	text := t.lines[line-1]
	for i := range text {
		if column--; column < 1 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

func (t *Text) failAt(line, column int, format string, args ...any) {
	t.Mistakes = append(t.Mistakes, Mistake{Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}
