// SPDX-License-Identifier: MIT

package descriptors

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/yamltext"
	"go.yaml.in/yaml/v4"
)

// value is a node with its path, such as descriptors[2].rate_limit.unit. Each of its methods reads one
// form of values. If the value has another form, the method reports a mistake and returns nothing. A
// missing value and a null are nothing, as in envoyproxy/ratelimit.
type value struct {
	r    *reader
	path string
	node *yaml.Node // nil: not given
}

func (v value) given() bool {
	return v.node != nil && (v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!null")
}

func (v value) fail(format string, args ...any) { v.failAt(v.node, format, args...) }

func (v value) failAt(n *yaml.Node, format string, args ...any) {
	v.r.errs.Add(v.message(n, format, args...))
}

func (v value) warn(n *yaml.Node, format string, args ...any) {
	v.r.warnings.Add(v.message(n, format, args...))
}

func (v value) message(n *yaml.Node, format string, args ...any) config.Error {
	message := fmt.Sprintf(format, args...)
	if v.path != "" {
		message = v.path + ": " + message
	}
	return config.Error{File: v.r.file, Line: max(n.Line, 1), Column: max(n.Column, 1), Message: message}
}

// expected reports that v has another form. If v is near to one of the words, the message asks for that
// word.
func (v value) expected(what string, words ...string) {
	if v.node.Kind == yaml.ScalarNode {
		if question := yamltext.DidYouMean(v.node.Value, words); question != "" {
			v.fail("found %s%s, expected %s", found(v.node), question, what)
			return
		}
	}
	v.fail("expected %s, found %s", what, found(v.node))
}

const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// found describes a node as it was written.
func found(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Style&quotes != 0:
		return quote(n.Value) + " in quotes"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag != "!!str" && n.Tag != "":
		return yamltext.Shorten(n.Value)
	}
	return quote(n.Value)
}

func quote(s string) string { return strconv.Quote(yamltext.Shorten(s)) }

// longestText is the size of the longest text in bytes.
const longestText = 4096

// text reads a text. A number or a truth value without quotes is the text of its characters.
func (v value) text() (text string, ok bool) {
	switch {
	case !v.given():
		return "", true
	case v.node.Kind != yaml.ScalarNode:
		v.expected("text")
	case len(v.node.Value) > longestText:
		v.fail("expected at most %d bytes, found %d", longestText, len(v.node.Value))
	default:
		return v.node.Value, true
	}
	return "", false
}

// truth reads a truth value. envoyproxy/ratelimit reads YAML 1.1, so its words count.
func (v value) truth() bool {
	if !v.given() {
		return false
	}
	if v.node.Kind == yaml.ScalarNode && v.node.Style&quotes == 0 {
		switch v.node.Value {
		case "true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON":
			return true
		case "false", "False", "FALSE", "no", "No", "NO", "n", "N", "off", "Off", "OFF":
			return false
		}
	}
	v.expected("true or false", "true", "false")
	return false
}

// whole reads a whole number in digits, which underscores may divide. It returns 0 if there is
// none.
func (v value) whole(least, most int64) int64 {
	if !v.given() {
		return 0
	}
	digits := strings.ReplaceAll(strings.TrimPrefix(v.node.Value, "-"), "_", "")
	if v.node.Kind != yaml.ScalarNode || v.node.Style&quotes != 0 || digits == "" ||
		strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		v.expected(fmt.Sprintf("a whole number in digits, %d to %d", least, most))
		return 0
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(v.node.Value, "_", ""), 10, 64)
	if err != nil || n < least || n > most {
		v.expected(fmt.Sprintf("%d to %d", least, most))
		return 0
	}
	return n
}

// choice reads one of several words and returns its index, or 0 if there is none.
func (v value) choice(words ...string) int {
	if !v.given() {
		return 0
	}
	if v.node.Kind == yaml.ScalarNode {
		if i := slices.Index(words, v.node.Value); i >= 0 {
			return i
		}
	}
	v.expected(yamltext.Join(words, "or"), words...)
	return 0
}

// list reads a list.
func (v value) list(of string) []value {
	if !v.given() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.expected("a list of " + of)
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = value{v.r, v.path + "[" + strconv.Itoa(i) + "]", n}
	}
	return items
}
