// SPDX-License-Identifier: MIT

package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// Options say how files are read.
type Options struct {
	// Merge lets several files have the same domain, as MERGE_DOMAIN_CONFIG does in envoyproxy/ratelimit.
	Merge bool

	// Scope is the scope of a limit that does not name one. Empty means rule.Local.
	Scope rule.Scope
}

// maxNames is how many bytes all full names together can have.
const maxNames = 64 << 20

// Parse reads files in the words of v. The default algorithm is the one that is called W. The error is
// [config.Errors] and names the first mistakes of all files, in the order of files. Parse keeps no Data.
func Parse(files []File, v config.Vocabulary, o Options) (*Tree, error) {
	o.Scope = cmp.Or(o.Scope, rule.Local)
	p := &parser{words: v, options: o, tree: None()}
	readers := make([]*reader, len(files))
	var errs config.Errors
	for i, f := range files {
		readers[i] = &reader{parser: p, file: f.Name}
		if f.Data == nil {
			readers[i].warnings = config.Errors{{File: f.Name, Line: 1, Column: 1, Message: "it is no regular file, so it is not read"}}
			continue
		}
		readers[i].read(f.Data)
		errs = append(errs, readers[i].errs.Sorted()...).First()
	}
	if len(errs) > 0 {
		return nil, errs
	}
	p.warnOfNames()
	for _, r := range readers {
		p.tree.Warnings = append(p.tree.Warnings, r.warnings.Sorted()...).First()
	}
	p.tree.name()
	return p.tree, nil
}

// parser makes a tree of all files.
type parser struct {
	words   config.Vocabulary
	options Options
	tree    *Tree
	names   int // bytes of all full names together

	replaced []value // the names in replaces, which any file can have
}

// mostSuggestions is how many warnings about names suggest another name. A file can have 100,000 of each,
// and a suggestion compares one with all others.
const mostSuggestions = 20

// warnOfNames warns of names in replaces that no limit has.
func (p *parser) warnOfNames() {
	var names []string
	has := map[string]bool{}
	for _, l := range p.tree.limits {
		if l.Name != "" && !has[l.Name] {
			has[l.Name] = true
			names = append(names, l.Name)
		}
	}
	suggestions := 0
	for _, v := range p.replaced {
		name, question := v.node.Value, ""
		if has[name] {
			continue
		}
		if suggestions++; suggestions <= mostSuggestions {
			question = yamltext.DidYouMean(name, names)
		}
		v.warn(v.node, "no rate_limit has the name %s, so nothing is replaced%s", quote(name), question)
	}
}

// reader reads one file.
type reader struct {
	*parser
	file     string
	errs     config.Errors
	warnings config.Errors
}

// place is where something is written.
type place struct {
	file string
	line int
}

func (r *reader) place(n *yaml.Node) place { return place{r.file, n.Line} }

// placeText returns a place as messages about r's file show it.
func (r *reader) placeText(p place) string {
	if p.file == r.file {
		return fmt.Sprintf("line %d", p.line)
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// level is where a list of descriptors belongs.
type level struct {
	*node
	path     []string // the domain and the composite keys
	entries  []Entry  // of Limit.Levels
	fullName string
}

// read reads a file, which has one document.
func (r *reader) read(data []byte) {
	fail := func(line, column int, format string, args ...any) {
		r.errs.Add(config.Error{File: r.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
	}
	decoded, bad := yamltext.Decode(data, bounds.MaxFile)
	if bad != nil {
		fail(bad.Line, bad.Column, "%s", bad.Message)
		return
	}
	text := yamltext.New(decoded, yamltext.AsWhole)
	documents := slices.Collect(text.Documents())
	for _, m := range text.Mistakes {
		fail(max(m.Line, 1), max(m.Column, 1), "%s", m.Message)
	}
	if text.Broken {
		return
	}
	switch {
	case len(documents) == 0 && len(r.errs) == 0:
		fail(1, 1, "the file is empty, expected domain and descriptors")
	case len(documents) > 1:
		second := documents[1].Content[0]
		fail(max(second.Line, 1), max(second.Column, 1), "expected one document in a file, found %d", len(documents))
	}
	for _, d := range documents[:min(len(documents), 1)] {
		r.domain(value{r: r, node: d.Content[0]})
	}
}

// domain reads the whole of a file.
func (r *reader) domain(v value) {
	m, ok := v.mapping(aFile, fileKeys)
	if !ok {
		return
	}
	name, ok := m.get("domain").text()
	if ok && name == "" {
		at := v.node
		if given := m.fields["domain"].value; given != nil {
			at = given
		}
		v.failAt(at, "the domain is empty, expected the name that the requests give")
	}
	root, first := r.tree.domains[name], place{}
	if root != nil {
		first = root.at
	}
	switch {
	case root == nil || name == "":
		root = &node{at: r.place(v.node)}
		if name != "" {
			root.at = r.place(m.fields["domain"].key)
			r.tree.domains[name] = root
		}
	case !r.options.Merge:
		m.get("domain").fail("the domain %s is given twice, first in %s, expected another, or --descriptors-merge to join the files", quote(name), r.placeText(first))
		root = &node{at: root.at}
	}
	before := len(r.tree.limits)
	r.descriptors(m.get("descriptors"), level{root, []string{name}, nil, name})
	if len(r.tree.limits) == before {
		v.warn(v.node, "there is no rate_limit, so this file limits nothing in the domain %s", quote(name))
	}
}

// descriptors reads a list of descriptors.
func (r *reader) descriptors(v value, above level) {
	for _, item := range v.list("descriptors") {
		r.descriptor(item, above)
	}
}

// descriptor reads one descriptor with all that is below it.
func (r *reader) descriptor(v value, above level) {
	m, ok := v.mapping(aDescriptor, descriptorKeys)
	if !ok {
		return
	}
	entry, ok := readEntry(m)
	composite := entry.Key
	if entry.Value != "" {
		composite += "_" + entry.Value
	}
	here := &node{at: r.place(v.node)} // also after a mistake, so that the mistakes below are found too
	if ok {
		if first := above.below[composite]; first != nil {
			v.fail("the composite key %s is given twice at this level, first in %s, expected another", quote(composite), r.placeText(first.at))
		} else {
			above.add(composite, here)
		}
	}
	here.share, here.valueToMetric = m.get("share_threshold").truth(), m.get("value_to_metric").truth()
	if here.share && ok && !strings.HasSuffix(composite, "*") {
		m.failKey("share_threshold", "expected a value that ends in *, found %s", quote(composite))
	}
	next := level{here, append(slices.Clip(above.path), composite), append(slices.Clip(above.entries), entry), above.fullName + "." + composite}
	r.limit(m, next)
	if here.limit == nil && entry.Value != "" {
		r.tree.exempt = append(r.tree.exempt, &Limit{Index: -1, FullName: next.fullName, Levels: next.entries, Unlimited: true, File: r.file, Line: v.node.Line})
	}
	r.descriptors(m.get("descriptors"), next)
}

// readEntry reads the key and the value of a descriptor.
func readEntry(m mapping) (e Entry, ok bool) {
	key, ok := m.get("key").text()
	if ok && key == "" {
		at := m.node
		if given := m.fields["key"].value; given != nil {
			at = given
		}
		m.failAt(at, "the key is empty, expected the key of an entry")
		ok = false
	}
	given := m.get("value")
	text, fine := given.text()
	if star := strings.IndexByte(text, '*'); star >= 0 && star < len(text)-1 {
		given.warn(given.node, "%s matches itself alone, because * is a wildcard at the end only", quote(text))
	}
	return Entry{key, text}, ok && fine
}

// add adds a descriptor below n.
func (n *node) add(composite string, below *node) {
	if n.below == nil {
		n.below = map[string]*node{}
	}
	n.below[composite] = below
	if prefix, ok := strings.CutSuffix(composite, "*"); ok {
		n.wild = append(n.wild, wildcard{prefix, composite, below})
	}
}
