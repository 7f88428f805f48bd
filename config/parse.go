// SPDX-License-Identifier: MIT

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
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
// error is [Errors] and contains every mistake. Parse does not keep data.
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
	text, bad := yamltext.Decode(data, most)
	if bad != nil {
		return nil, Errors{{File: name, Line: bad.Line, Column: bad.Column, Message: bad.Message}}
	}
	best := v.readParts(name, text, remote, partSize)
	if best == nil {
		best = v.newReader(name, text, remote)
		best.read(text)
	}
	if len(best.errs) > 0 {
		if spaced, added := addSpaces(text); len(added) > 0 {
			r := v.newReader(name, spaced, remote)
			r.added = added
			r.read(spaced)
			if !best.betterThan(r) {
				best = r
			}
		}
	}
	if len(best.errs) > 0 {
		return nil, best.errs.sorted()
	}
	c := best.config
	c.fill(v)
	c.Source, c.withoutRedis = name, best.withoutRedis.sorted()
	if c.Redis == nil && !remote {
		best.warnings = append(best.warnings, c.withoutRedis...)
	}
	c.Warnings = best.warnings.sorted()
	sum := sha256.Sum256(data)
	c.Version = hex.EncodeToString(sum[:6])
	return c, nil
}

func (v Vocabulary) newReader(name, text string, remote bool) *reader {
	return &reader{
		name: name, words: v, remote: remote, text: yamltext.New(text), config: new(Config),
		names: map[string]int{}, urls: map[string]written{}, folded: map[string]written{},
	}
}

// readParts reads a text in parts, or returns nil if the text must be read as a whole.
func (v Vocabulary) readParts(name, text string, remote bool, size int) *reader {
	head, parts := divide(text, size)
	if len(parts) < 2 {
		return nil
	}
	r := v.newReader(name, text, remote)
	r.parts = parts
	r.read(head)
	if len(r.errs) > 0 {
		return nil
	}
	return r
}

// A reader turns one text into a configuration, or into errors.
type reader struct {
	name   string
	text   *yamltext.Text
	added  map[int]int // see addSpaces
	words  Vocabulary
	remote bool   // see ParseRemote
	parts  []part // of the list of entries, if the text was divided

	config       *Config
	errs         Errors
	warnings     Errors
	withoutRedis Errors // see Config

	names  map[string]int     // of rules, with their lines
	urls   map[string]written // of entries, by Pattern.Same
	folded map[string]written // the last one that has capital letters, by Pattern.Same in small letters

	entries, rules count
}

// written is a value as the text has it. It keeps no node, because a node is much larger than the value.
type written struct {
	text string
	line int
}

// expect makes room for so many entries and those of the parts, so that tables do not grow again and again.
func (r *reader) expect(entries int) {
	for _, p := range r.parts {
		entries += p.items
	}
	entries = min(entries, bounds.MaxEntries)
	r.config.Limits = slices.Grow(r.config.Limits, entries)
	if len(r.urls) == 0 {
		r.urls = make(map[string]written, entries)
	}
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
	return len(r.errs) < len(other.errs)
}

func (r *reader) read(text string) {
	documents := r.documents(text)
	if len(documents) == 0 && len(r.errs) == 0 {
		r.failAt(1, 1, "the configuration is empty, expected %s", forms)
	}
	for _, d := range documents {
		r.document(d, len(documents) == 1)
	}
	if r.entries.beyond != nil {
		r.fail(r.entries.beyond, "expected at most %d entries, found %d", bounds.MaxEntries, r.entries.n)
	}
	if r.rules.beyond != nil {
		r.fail(r.rules.beyond, "expected at most %d rules of all entries together, found %d", bounds.MaxRules, r.rules.n)
	}
}

// documents returns the documents of text, which is the whole text or a part of it.
func (r *reader) documents(text string) []*yaml.Node {
	known := len(r.text.Mistakes)
	documents := r.text.Documents(text)
	for _, m := range r.text.Mistakes[known:] {
		r.failAt(m.Line, m.Column, "%s", m.Message)
	}
	return documents
}

const forms = "an entry (url, rules), a list of them, or settings and limits"

// document reads one document of any form. A document with settings must be the only one.
func (r *reader) document(d *yaml.Node, alone bool) {
	v := value{r: r, key: "document", node: d.Content[0]}
	switch {
	case v.null():
		r.fail(d, "the document is empty, expected %s", forms)
	case v.node.Kind == yaml.SequenceNode:
		readEntries(v)
	case v.node.Kind == yaml.MappingNode && isFull(v.node):
		if !alone {
			v.fail("expected settings and limits in one document alone")
		}
		readSettings(v)
	case v.node.Kind == yaml.MappingNode:
		v.form = entryKeys
		readEntry(v)
	default:
		v.expected(forms)
	}
}

// fail records an error at a node.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.failAt(n.Line, n.Column, format, args...)
}

func (r *reader) failAt(line, column int, format string, args ...any) {
	r.errs = append(r.errs, r.place(line, column, format, args...))
}

// warn records a warning at a node.
func (r *reader) warn(n *yaml.Node, format string, args ...any) {
	r.warnings = append(r.warnings, r.place(n.Line, n.Column, format, args...))
}

// place returns a message with a place in the text before addSpaces changed it.
func (r *reader) place(line, column int, format string, args ...any) Error {
	if space, ok := r.added[line]; ok && column > space {
		column--
	}
	return Error{File: r.name, Line: max(line, 1), Column: max(column, 1), Message: fmt.Sprintf(format, args...)}
}
