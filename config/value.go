// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/yamltext"
	"go.yaml.in/yaml/v4"
)

// A value is the value of a key. Each of its methods reads one form of values. If the value has another
// form, the method reports an error and returns the default or nothing. A missing value is its default.
type value struct {
	r    *reader
	key  string     // as messages call it
	form form       // what it has to look like
	node *yaml.Node // nil: not given
	hide bool       // no message shows it
}

func (v value) given() bool { return v.node != nil }

func (v value) scalar() bool { return v.node.Kind == yaml.ScalarNode }

func (v value) null() bool { return v.scalar() && v.node.Tag == "!!null" }

func (v value) quoted() bool {
	const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return v.node.Style&quotes != 0
}

// is reports whether the value is word.
func (v value) is(word string) bool { return v.given() && v.scalar() && v.node.Value == word }

// fail records an error at v.
func (v value) fail(format string, args ...any) { v.r.fail(v.node, format, args...) }

// expected reports that v has not the expected form. If v is near to one of the words, the message
// asks for that word.
func (v value) expected(what string, words ...string) {
	if v.scalar() {
		if question := yamltext.DidYouMean(v.node.Value, words); question != "" {
			v.fail("%s: found %s%s, expected %s", v.key, v.found(), question, what)
			return
		}
	}
	v.fail("%s: expected %s, found %s", v.key, what, v.found())
}

// found describes v as it was written.
func (v value) found() string {
	switch {
	case v.node.Kind == yaml.MappingNode:
		return "a mapping"
	case v.node.Kind == yaml.SequenceNode:
		return "a list"
	case v.null():
		return "nothing"
	case v.hide:
		return yamltext.Hidden
	case !v.quoted() && v.node.Tag != "!!str" && v.node.Tag != "":
		return yamltext.Shorten(v.node.Value)
	}
	text := yamltext.Quote(v.node.Value)
	if v.quoted() && text != yamltext.Hidden {
		text += " in quotes"
	}
	return text
}

// text reads a text.
func (v value) text() (text string, ok bool) {
	longest := v.form.(interface{ bytes() int }).bytes()
	if !v.given() {
		return "", false
	}
	if !v.scalar() || v.null() {
		v.expected("text")
		return "", false
	}
	switch v.node.Tag {
	case "!!bool", "!!int", "!!float":
		if v.hide {
			v.fail("%s: expected text, found what is text only in quotes", v.key)
		} else {
			v.fail("%s: expected text, found %s, which is text only in quotes", v.key, yamltext.Shorten(v.node.Value))
		}
		return "", false
	}
	switch text = v.node.Value; {
	case text == "":
		v.fail("%s: expected text, found an empty one", v.key)
	case len(text) > longest:
		v.fail("%s: expected at most %d bytes, found %d", v.key, longest, len(text))
	case v.goesOn():
		v.fail("%s: expected text on one line, found one that goes on in the next", v.key)
	default:
		return text, true
	}
	return "", false
}

// goesOn reports whether a text without quotes continues on the next line. That happens if the next
// line is a key without a space after its colon.
func (v value) goesOn() bool {
	if v.quoted() || !strings.Contains(v.node.Value, " ") {
		return false
	}
	if v.node.Column > 256 { // looking costs time, and out there are brackets around it
		return false
	}
	_, line := v.r.text.Around(v.node.Line, v.node.Column)
	return !strings.Contains(line, v.node.Value)
}

// whole reads a whole number, written in digits.
func (v value) whole() int64 {
	f := v.form.(wholeForm)
	least, most, otherwise := f.least, f.most, f.otherwise
	if !v.given() {
		return otherwise
	}
	digits := strings.TrimPrefix(v.node.Value, "-")
	if !v.scalar() || v.quoted() || digits == "" || strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		v.expected(fmt.Sprintf("a whole number in digits, %d to %d", least, most))
		return otherwise
	}
	n, err := strconv.ParseInt(v.node.Value, 10, 64)
	if err != nil || n < least || n > most {
		v.expected(fmt.Sprintf("%d to %d", least, most))
		return otherwise
	}
	return n
}

// number reads a number in digits, with at most six behind the point.
func (v value) number() float64 {
	f := v.form.(numberForm)
	if !v.given() {
		return f.otherwise
	}
	whole, part, _ := strings.Cut(v.node.Value, ".")
	n, err := strconv.ParseFloat(v.node.Value, 64)
	if !v.scalar() || v.quoted() || err != nil || strings.Trim(whole+part, "0123456789") != "" || len(part) > 6 || n > f.most {
		v.expected(fmt.Sprintf("a number in digits, 0 to %.0f, with at most six digits behind the point", f.most))
		return f.otherwise
	}
	return n
}

// duration reads a length of time in Go's notation.
func (v value) duration() time.Duration {
	f := v.form.(durationForm)
	least, most, otherwise := f.least, f.most, f.otherwise
	if !v.given() {
		return otherwise
	}
	d, err := time.ParseDuration(v.node.Value)
	switch {
	case !v.scalar() || err != nil:
		v.expected(fmt.Sprintf("a duration such as 50ms, %v to %v", least, most))
		return otherwise
	case d < least || d > most:
		v.expected(fmt.Sprintf("%v to %v", least, most))
		return otherwise
	}
	return d
}

// truth reads true or false.
func (v value) truth() bool {
	otherwise := v.form.(truthForm).otherwise
	switch {
	case !v.given():
		return otherwise
	case v.scalar() && v.node.Tag == "!!bool":
		return strings.EqualFold(v.node.Value, "true")
	}
	v.expected("true or false")
	return otherwise
}

// choice reads one of several words, and returns its index. The first is the default.
func (v value) choice() int {
	if !v.given() {
		return 0
	}
	words := v.form.(choiceForm)
	for i, word := range words {
		if v.is(word) {
			return i
		}
	}
	v.expected(yamltext.Join(words, "or"), words...)
	return 0
}

// list reads a list. It is an iterator.
func (v value) list(yield func(value) bool) {
	if !v.given() {
		return
	}
	f := v.form.(listForm)
	if v.node.Kind != yaml.SequenceNode {
		v.expected("a list of " + f.of)
		return
	}
	if f.nonempty && v.len() == 0 {
		v.fail("%s: expected a list of %s, found an empty one", v.key, f.of)
	}
	v.r.text.Items(v.node, func(n *yaml.Node) bool {
		return yield(value{r: v.r, key: cmp.Or(f.called, v.key), form: f.item, node: n})
	})
}

// pairs yields the keys of a mapping with their values.
func (v value) pairs(yield func(key, val *yaml.Node) bool) {
	var key *yaml.Node
	v.r.text.Items(v.node, func(n *yaml.Node) bool {
		if key == nil {
			key = n
			return true
		}
		of := key
		key = nil
		return yield(of, n)
	})
}

// entries yields the keys and values of a mapping whose keys are texts.
func (v value) entries() iter.Seq2[value, value] {
	return func(yield func(key, val value) bool) {
		if !v.given() {
			return
		}
		if v.node.Kind != yaml.MappingNode {
			v.expected("a mapping")
			return
		}
		f := v.form.(mapForm)
		for name, item := range v.pairs {
			if name.Tag == "!!merge" {
				v.r.fail(name, noMerging)
				continue
			}
			if !yield(value{r: v.r, key: v.key, form: f.key, node: name}, value{r: v.r, key: v.key, form: f.item, node: item}) {
				return
			}
		}
	}
}

// len returns how many items a value has that may be a list or a mapping. It is exact below a thousand.
func (v value) len() int {
	if !v.given() {
		return 0
	}
	return v.r.text.Len(v.node)
}
