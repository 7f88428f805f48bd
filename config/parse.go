// SPDX-License-Identifier: MIT

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// Parse reads a configuration in the words of [DefaultVocabulary]. See [Vocabulary.Parse].
func Parse(name string, data []byte) (*Config, error) {
	return DefaultVocabulary().Parse(name, data)
}

// Load reads a file in the words of [DefaultVocabulary]. See [Vocabulary.Load].
func Load(path string) (*Config, error) {
	return DefaultVocabulary().Load(path)
}

// Parse reads a configuration in the words of v. Messages use name as the name of the file. The
// error is [Errors] and names every mistake, up to a hundred. Parse does not keep data.
func (v Vocabulary) Parse(name string, data []byte) (*Config, error) {
	return v.parse(name, data, false)
}

// ParseRemote reads a remote configuration: the short form, or the full form with limits and no
// settings, because settings come from the local file. Only Limits and Warnings of the result are
// those of the document. The rest has the defaults, and [Config.WithRemote] replaces it by the settings of
// the local file. The warnings do not mention Redis, because only the local file configures it.
// The error is [Errors].
func (v Vocabulary) ParseRemote(name string, data []byte) (*Config, error) {
	return v.parse(name, data, true)
}

// Load reads the configuration in a file. The error is [Errors], or the error of reading the
// file. Load reads at most 8 MiB and one byte more.
func (v Vocabulary) Load(path string) (*Config, error) {
	data, err := readFile(path, bounds.MaxFile+1)
	if err != nil {
		return nil, err
	}
	return v.Parse(path, data)
}

func (v Vocabulary) parse(name string, data []byte, remote bool) (*Config, error) {
	most := bounds.MaxFile
	if remote {
		most = bounds.MaxConfig
	}
	if v.Reading != nil {
		defer v.Reading(len(data))()
	}
	text, bad := yamltext.Decode(data, most)
	if bad != nil {
		return nil, Errors{{File: name, Line: bad.Line, Column: bad.Column, Message: bad.Message}}
	}
	best := v.newReader(name, yamltext.New(text, yamltext.InParts), remote)
	best.read()
	if len(best.errs) > 0 {
		best.config = nil // which can be large
		if spaced, added := addSpaces(text); len(added) > 0 {
			r := v.newReader(name, yamltext.New(spaced, yamltext.InParts), remote)
			r.added = added
			r.read()
			if !best.betterThan(r) {
				best = r
			}
		}
	}
	if len(best.errs) > 0 {
		return nil, best.errs.Sorted()
	}
	c := best.config
	c.fill(v)
	c.Source, c.withoutRedis = name, best.withoutRedis.Sorted()
	if c.Redis == nil && !remote {
		best.warnings = append(best.warnings, c.withoutRedis...)
	}
	c.Warnings = best.warnings.Sorted()
	sum := sha256.Sum256(data)
	c.Version = hex.EncodeToString(sum[:6])
	return c, nil
}

func (v Vocabulary) newReader(name string, text *yamltext.Text, remote bool) *reader {
	return &reader{
		name: name, words: v, remote: remote, text: text, config: new(Config),
		names: map[string]int{}, urls: map[string]written{}, folded: map[string]written{},
	}
}

// A reader turns one text into a configuration, or into errors.
type reader struct {
	name   string
	text   *yamltext.Text
	added  map[int]int // see addSpaces
	words  Vocabulary
	remote bool // see ParseRemote

	config       *Config
	errs         Errors
	mistakes     int // how many errors there are, also those that errs does not name
	warnings     Errors
	withoutRedis Errors // see Config

	names  map[string]int     // of rules, with their lines
	urls   map[string]written // of entries, by Pattern.Same
	folded map[string]written // the last one that has capital letters, by Pattern.Same in small letters

	entries, rules count

	fields []field     // of the mappings that are being read, see fieldsFor
	room   []rule.Rule // for the rules of the next entries
	places [][2]int    // of the rules of an entry; memory that the next entry uses again
}

// written is a value as the text has it. It keeps no node, because a node is much larger than the value.
type written struct {
	text string
	line int
}

// count is how many entries or rules a configuration has.
type count struct {
	n      int
	beyond *yaml.Node // the first that is one too many; nil: there is none
}

// add counts a node. It reports whether there are at most most.
func (c *count) add(n *yaml.Node, most int) bool {
	if c.n++; c.n == most+1 {
		c.beyond = n
	}
	return c.n <= most
}

// betterThan reports whether the errors of r explain the mistake better than those of another reading
// of the same text.
func (r *reader) betterThan(other *reader) bool {
	if r.text.Broken != other.text.Broken {
		return other.text.Broken
	}
	return r.mistakes < other.mistakes
}

func (r *reader) read() {
	documents := 0
	var first value // if it is full and must be alone
	for d := range r.text.Documents() {
		v := value{r: r, key: "document", node: d.Content[0]}
		before, mistakes := r.errs, r.mistakes
		r.errs = nil
		if documents++; documents == 2 && first.given() {
			first.fail("%s", notAlone)
		}
		if r.document(d, v) {
			first = v
			if documents > 1 {
				v.fail("%s", notAlone)
			}
		}
		if r.text.Broken { // what a broken document says is a guess
			r.errs, r.mistakes = nil, mistakes
		}
		for _, e := range r.errs {
			before.Add(e)
		}
		r.errs = before
	}
	for _, m := range r.text.Mistakes {
		r.failAt(m.Line, m.Column, "%s", m.Message)
	}
	if m := r.text.Unread; m != nil && r.mistakes == 0 {
		r.failAt(m.Line, m.Column, "%s", m.Message)
	}
	if documents == 0 && len(r.errs) == 0 {
		r.failAt(1, 1, "the configuration is empty, expected %s", forms)
	}
	if r.entries.beyond != nil {
		r.fail(r.entries.beyond, "expected at most %d entries, found %d", bounds.MaxEntries, r.entries.n)
	}
	if r.rules.beyond != nil {
		r.fail(r.rules.beyond, "expected at most %d rules of all entries together, found %d", bounds.MaxRules, r.rules.n)
	}
}

const forms = "an entry (url, rules), a list of them, or settings and limits"

const notAlone = "expected settings and limits in one document alone"

// document reads one document. It reports whether it has settings, so that it must be the only one.
func (r *reader) document(d *yaml.Node, v value) (full bool) {
	switch {
	case v.null():
		r.fail(d, "the document is empty, expected %s", forms)
	case v.node.Kind == yaml.SequenceNode:
		readEntries(v)
	case v.node.Kind == yaml.MappingNode && isFull(v):
		readSettings(v)
		return true
	case v.node.Kind == yaml.MappingNode:
		v.form = entryKeys
		readEntry(v)
	default:
		v.expected(forms)
	}
	return false
}

// fail records an error at a node.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.failAt(n.Line, n.Column, format, args...)
}

func (r *reader) failAt(line, column int, format string, args ...any) {
	r.mistakes++
	r.errs.Add(r.place(line, column, format, args...))
}

// warn records a warning at a node.
func (r *reader) warn(n *yaml.Node, format string, args ...any) {
	r.warnings.Add(r.place(n.Line, n.Column, format, args...))
}

// place returns a message with a place in the text before addSpaces changed it.
func (r *reader) place(line, column int, format string, args ...any) Error {
	if space, ok := r.added[line]; ok && column > space {
		column--
	}
	return Error{File: r.name, Line: max(line, 1), Column: max(column, 1), Message: fmt.Sprintf(format, args...)}
}
