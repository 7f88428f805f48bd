// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/diana-limiter/diana/config"
)

// Result is a configuration of Diana, and what differs from the limits of the other program.
type Result struct {
	YAML    string        // the remarks are comments in it
	Remarks config.Errors // in the order of the YAML
}

// document is a configuration of Diana to be written.
type document struct {
	title    []string // comments at the top
	remarks  []config.Error
	settings []string // lines
	entries  []*entry
	byURL    map[string]*entry
}

// entry is an entry of a document.
type entry struct {
	url       string
	keys      []string // lines besides url and rules
	remarks   []config.Error
	rules     []*written
	bandwidth bool
}

// written is a rule of a document.
type written struct {
	name    string // empty: none
	keys    []string
	shadow  bool
	status  int    // of a refusal; 0: none
	file    string // of the limit
	line    int
	column  int
	remarks []config.Error
}

// fault returns a message about the limit of the rule.
func (w *written) fault(format string, args ...any) config.Error {
	return config.Error{File: w.file, Line: w.line, Column: w.column, Message: fmt.Sprintf(format, args...)}
}

func (d *document) remark(e config.Error) { d.remarks = append(d.remarks, e) }

// entry returns the entry of a URL, which it adds if it is missing.
func (d *document) entry(url string) *entry {
	e := d.byURL[url]
	if e == nil {
		e = &entry{url: url}
		if d.byURL == nil {
			d.byURL = map[string]*entry{}
		}
		d.byURL[url], d.entries = e, append(d.entries, e)
	}
	return e
}

// result writes the document.
func (d *document) result() Result {
	var b strings.Builder
	var all config.Errors
	taken, last := map[string]bool{}, map[string]int{}
	comment := func(indent string, list []config.Error) {
		for _, e := range list {
			fmt.Fprintf(&b, "%s# %s\n", indent, printable(e.String()))
		}
		all = append(all, list...)
	}
	for _, line := range d.title {
		fmt.Fprintf(&b, "# %s\n", printable(line))
	}
	comment("", d.remarks)
	for _, line := range d.settings {
		fmt.Fprintf(&b, "%s\n", line)
	}
	if len(d.entries) == 0 {
		b.WriteString("limits: []\n")
		return Result{b.String(), all}
	}
	b.WriteString("limits:\n")
	for _, e := range d.entries {
		comment("  ", e.remarks)
		fmt.Fprintf(&b, "  - url: %s\n", plain(e.url))
		for _, line := range e.keys {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		if len(e.rules) > 0 {
			b.WriteString("    rules:\n")
		}
		for _, r := range e.rules {
			comment("      ", r.remarks)
			keys := slices.Clone(r.keys)
			if nameable.MatchString(r.name) {
				name := r.name
				for taken[name] {
					last[r.name]++
					name = fmt.Sprintf("%s-%d", r.name, last[r.name]+1)
				}
				taken[name] = true
				keys = append([]string{"name: " + plain(name)}, keys...)
			}
			if r.shadow {
				keys = append(keys, "mode: shadow")
			}
			fmt.Fprintf(&b, "      - {%s} # %s\n", strings.Join(keys, ", "), printable(fmt.Sprintf("%s:%d", r.file, r.line)))
		}
	}
	return Result{b.String(), all}
}

// nameable matches a name that can be the name of a rule.
var nameable = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// unquoted matches a text that YAML reads as a text also without quotes.
var unquoted = regexp.MustCompile(`^[/A-Za-z_][/A-Za-z0-9_.-]*$`)

// words are texts that readers of YAML can take for another kind of value.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// plain returns a text as YAML, in quotes if it needs them.
func plain(text string) string {
	if unquoted.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, "?"))
}

// yamlList returns texts as YAML: one alone, or a list.
func yamlList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = plain(text)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// printable returns a text that can be in a comment of one line.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}
