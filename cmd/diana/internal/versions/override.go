// SPDX-License-Identifier: MIT

package versions

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
)

// document is the text of a valid configuration that is edited in place, so that its comments and its layout stay.
type document struct {
	lines []string // each with its line end
}

var errLayout = errors.New("the layout of the document does not allow this change, expected a push of a text that has it")

// withExemption returns a text in which the rule with that number exempts who until a moment. Rules are numbered
// in the order of the text, from 0. The caller checks that the result means what it should.
func withExemption(text []byte, number int, who rule.Who, until time.Time) ([]byte, error) {
	plain, mistake := yamltext.Decode(text, bounds.MaxConfig)
	if mistake != nil {
		return nil, errLayout
	}
	rules := ruleNodes(slices.Collect(yamltext.New(plain, yamltext.AsWhole).Documents()))
	if number >= len(rules) {
		return nil, errLayout
	}
	d := &document{strings.SplitAfter(string(text), "\n")}
	if err := d.exempt(rules[number], who, until.UTC().Format(time.RFC3339)); err != nil {
		return nil, err
	}
	return []byte(strings.Join(d.lines, "")), nil
}

// ruleNodes returns the rules of documents, in their order.
func ruleNodes(documents []*yaml.Node) (rules []*yaml.Node) {
	for _, d := range documents {
		entries := d.Content
		if limits := valueOf(entries[0], "limits"); limits != nil {
			entries = []*yaml.Node{limits}
		}
		if entries[0].Kind == yaml.SequenceNode {
			entries = entries[0].Content
		}
		for _, e := range entries {
			if list := valueOf(e, "rules"); list != nil {
				rules = append(rules, list.Content...)
			}
		}
	}
	return rules
}

// valueOf returns the value of a key in a mapping, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// exempt exempts who from a rule until a moment.
func (d *document) exempt(of *yaml.Node, who rule.Who, until string) error {
	override := strconv.Quote(who.String()) + ": {exempt: true, until: " + until + "}"
	overrides := valueOf(of, "overrides")
	switch {
	case overrides == nil:
		return d.addKey(of, "overrides: {"+override+"}")
	case overrides.Kind != yaml.MappingNode:
		return errLayout
	}
	for i := 0; i < len(overrides.Content); i += 2 {
		var other rule.Who
		if err := other.UnmarshalText([]byte(overrides.Content[i].Value)); err == nil && other.Canonical() == who.Canonical() {
			return d.prolong(overrides.Content[i+1], who, until)
		}
	}
	return d.addFirst(overrides, override)
}

// prolong replaces the end of an exemption.
func (d *document) prolong(override *yaml.Node, who rule.Who, until string) error {
	exempt, end := valueOf(override, "exempt"), valueOf(override, "until")
	switch {
	case exempt == nil || exempt.Value != "true":
		return impossible("the rule has an override of %s already, expected a push of a text without it", who)
	case end == nil:
		return impossible("the rule exempts %s already, without an end", who)
	}
	line, at, err := d.place(end)
	if err != nil {
		return err
	}
	before, after := d.lines[line][:at], d.lines[line][at:]
	if strings.HasPrefix(after, `"`) || strings.HasPrefix(after, "'") {
		before, after = before+after[:1], after[1:]
	}
	rest, ok := strings.CutPrefix(after, end.Value)
	if !ok {
		return errLayout
	}
	d.lines[line] = before + until + rest
	return nil
}

// addFirst adds a text with a key and its value to a mapping that may be empty, in front of its first key.
func (d *document) addFirst(mapping *yaml.Node, text string) error {
	if mapping.Style&yaml.FlowStyle != 0 {
		if len(mapping.Content) > 0 {
			text += ", "
		}
		return d.insert(mapping, "{", text)
	}
	line, at, err := d.place(mapping.Content[0])
	if err != nil {
		return err
	}
	if strings.Trim(d.lines[line][:at], " ") != "" {
		return errLayout
	}
	d.lines[line] = strings.Repeat(" ", at) + text + d.lineEnd() + d.lines[line]
	return nil
}

// addKey adds a text with a key and its value to a rule, behind its first key if that is a line of its own.
func (d *document) addKey(of *yaml.Node, text string) error {
	if of.Kind != yaml.MappingNode || len(of.Content) == 0 {
		return errLayout
	}
	if of.Style&yaml.FlowStyle != 0 {
		return d.insert(of, "{", text+", ")
	}
	key, value := of.Content[0], of.Content[1]
	line, at, err := d.place(key)
	if err != nil {
		return err
	}
	// The next line begins another key if the value is a text that ends in this line. A block of text does not, nor does
	// a text of several lines: the line does not contain its value.
	alone := value.Kind == yaml.ScalarNode && value.Line == key.Line && strings.HasSuffix(d.lines[line], "\n") &&
		value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && strings.Contains(d.lines[line][at:], value.Value)
	indent := strings.Repeat(" ", key.Column-1)
	if alone {
		d.lines[line] += indent + text + d.lineEnd()
	} else {
		d.lines[line] = d.lines[line][:at] + text + d.lineEnd() + indent + d.lines[line][at:]
	}
	return nil
}

// insert inserts a text behind the mark that a node begins with.
func (d *document) insert(n *yaml.Node, mark, text string) error {
	line, at, err := d.place(n)
	if err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(d.lines[line][at:], mark)
	if !ok {
		return errLayout
	}
	d.lines[line] = d.lines[line][:at] + mark + text + rest
	return nil
}

// place returns the index of the line of a node, and where in it the node begins. Columns count characters.
func (d *document) place(n *yaml.Node) (line, at int, err error) {
	if n.Line < 1 || n.Line > len(d.lines) {
		return 0, 0, errLayout
	}
	line = n.Line - 1
	column := 1
	if line == 0 && strings.HasPrefix(d.lines[0], "\uFEFF") { // a byte order mark has no column
		column--
	}
	for i := range d.lines[line] {
		if column == n.Column {
			return line, i, nil
		}
		column++
	}
	return 0, 0, errLayout
}

func (d *document) lineEnd() string {
	if strings.HasSuffix(d.lines[0], "\r\n") {
		return "\r\n"
	}
	return "\n"
}
