// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// readDescriptors reads files and directories, and standard input before them if a path means it.
func readDescriptors(paths []string) (files []descriptors.File, err error) {
	if i := slices.Index(paths, command.Stdin); i >= 0 {
		text, err := command.ReadLong(command.Stdin)
		if err != nil {
			return nil, err
		}
		name := command.NameOf(command.Stdin)
		if len(text) > bounds.MaxFile {
			return nil, fmt.Errorf("%s: expected at most %d KiB, found more", name, bounds.MaxFile>>10)
		}
		files, paths = []descriptors.File{{Name: name, Data: text}}, slices.Concat(paths[:i], paths[i+1:])
	}
	others, err := descriptors.Read(paths, descriptors.Names{})
	return append(files, others...), err
}

// loadDescriptors returns the descriptors of files and directories, and the names of the files. It prints
// the errors of files that are not valid. merge lets files have the same domain.
func loadDescriptors(o *command.Output, paths []string, merge bool) (*descriptors.Tree, []string, error) {
	files, err := readDescriptors(paths)
	if err != nil {
		return nil, nil, o.DescriptorFaults(err)
	}
	// The default scope of a limit depends on the configuration, which no file of descriptors needs.
	tree, err := descriptors.Parse(files, command.Vocabulary(), descriptors.Options{Merge: merge, Scope: rule.Global})
	if err != nil {
		return nil, nil, o.DescriptorFaults(err)
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		if f.Data != nil {
			names = append(names, f.Name)
		}
	}
	return tree, names, nil
}

// isDescriptors reports whether a file is a valid one of envoyproxy/ratelimit, and not large: to read a large one
// as a whole would be too dear for a hint.
func isDescriptors(file string) bool {
	files, err := descriptors.Read([]string{file}, descriptors.Names{})
	if err != nil || len(files) != 1 || len(files[0].Data) > 64<<10 {
		return false
	}
	_, err = descriptors.Parse(files, command.Vocabulary(), descriptors.Options{})
	return err == nil
}

// checkDescriptors validates files of descriptors, all together.
func checkDescriptors(o *command.Output, paths []string, merge bool) error {
	tree, files, err := loadDescriptors(o, paths, merge)
	if err != nil {
		return err
	}
	for _, w := range tree.Warnings {
		o.Fault(w, "warning: ")
	}
	limits := map[string]int{} // by file
	for _, l := range tree.Limits() {
		limits[l.File]++
	}
	for _, file := range files {
		text := "1 limit"
		if n := limits[file]; n != 1 {
			text = fmt.Sprintf("%d limits", n)
		}
		o.Printf("%s: ok, %s\n", file, text)
	}
	return nil
}

// explainDescriptors shows the limit of each descriptor. A descriptor is the text KEY=VALUE,KEY=VALUE.
func explainDescriptors(o *command.Output, paths []string, merge bool, domain string, texts []string) error {
	if err := command.Named(paths...); err != nil {
		return err
	}
	if len(texts) == 0 {
		return command.Usagef(`expected "<key=value> ..." after the domain %s`, domain)
	}
	lists := make([][]descriptors.Entry, len(texts))
	for i, text := range texts {
		for one := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(one, "=")
			if !ok {
				return command.Usagef("expected KEY=VALUE[,KEY=VALUE]..., found %s", text)
			}
			lists[i] = append(lists[i], descriptors.Entry{Key: key, Value: value})
		}
	}
	tree, _, err := loadDescriptors(o, paths, merge)
	if err != nil {
		return err
	}
	replacing := map[string]*descriptors.Limit{} // by the name that they replace
	for _, entries := range lists {
		if l, _ := tree.Find(domain, entries, nil); l != nil {
			for _, name := range l.Replaces {
				replacing[name] = l
			}
		}
	}
	for i, entries := range lists {
		if i > 0 {
			o.Printf("\n")
		}
		explainDescriptor(o, tree, domain, entries, replacing)
	}
	return nil
}

// explainDescriptor shows how the entries of a descriptor match, and its limit. replacing are the limits of
// the request by the names that they replace.
func explainDescriptor(o *command.Output, tree *descriptors.Tree, domain string, entries []descriptors.Entry, replacing map[string]*descriptors.Limit) {
	text := make([]string, len(entries))
	for i, e := range entries {
		text[i] = e.Key + "=" + e.Value
	}
	what := command.Legible(domain + " " + strings.Join(text, ","))
	l, key := tree.Find(domain, entries, nil)
	steps := tree.Trace(domain, entries)
	switch {
	case l == nil:
		o.Printf("%s has no limit: %s.\n", what, withoutLimit(tree, domain, entries, steps))
	case l.Name != "" && replacing[l.Name] != nil:
		o.Printf("%s is not counted: %s in %s:%d replaces %s.\n", what, command.Legible(replacing[l.Name].FullName),
			replacing[l.Name].File, replacing[l.Name].Line, command.Legible(l.FullName))
	case l.Unlimited:
		o.Printf("%s is unlimited by %s in %s:%d.\n", what, command.Legible(l.FullName), l.File, l.Line)
	default:
		o.Printf("%s is limited by %s in %s:%d.\n", what, command.Legible(l.FullName), l.File, l.Line)
	}
	if len(steps) > 0 {
		rows := [][]string{{"", "ENTRY", "MATCHED BY", "DESCRIPTOR", "COUNTED AS"}}
		for i, s := range steps {
			rows = append(rows, []string{
				strconv.Itoa(i + 1), command.Legible(text[i]), s.Way.String(), command.Legible(s.Key), command.Legible(s.Counted),
			})
		}
		o.Printf("\n%s", command.Columns(rows, 1, 0))
	}
	if l != nil && !l.Unlimited {
		rows := [][]string{
			{"ALGO", "LIMIT", "FLAGS", "KEY"},
			{l.Rule.Algorithm.Name(), descriptorLimit(l), descriptorFlags(l), command.Legible(string(plan.AppendGiven(nil, string(key))))},
		}
		o.Printf("\n%s", command.Columns(rows, 1, 0))
	}
}

// withoutLimit says why a descriptor has no limit.
func withoutLimit(tree *descriptors.Tree, domain string, entries []descriptors.Entry, steps []descriptors.Step) string {
	n := len(steps)
	switch {
	case !tree.Has(domain):
		return "no file has this domain"
	case n == len(entries):
		return "the descriptor " + command.Legible(steps[n-1].Key) + " has no rate_limit"
	}
	missing := "the entry " + command.Legible(entries[n].Key+"="+entries[n].Value) + " matches no descriptor"
	if n > 0 {
		missing += " below " + command.Legible(steps[n-1].Key)
	}
	return missing
}

// descriptorLimit returns the numbers of a limit that the file declares.
func descriptorLimit(l *descriptors.Limit) string {
	text := fmt.Sprintf("%d/%v", l.RequestsPerUnit, l.Unit)
	if n := l.Rule.Limit.Burst; n > 0 {
		text += fmt.Sprintf(", burst %d", n)
	}
	if n := l.Rule.Limit.Slices; n > 0 {
		text += fmt.Sprintf(", slices %d", n)
	}
	if n := l.Rule.Limit.Queue; n != 0 {
		text += fmt.Sprintf(", queue %d", max(n, 0)) // -1 means none
	}
	return text
}

// descriptorFlags returns the flags of a limit, or "-".
func descriptorFlags(l *descriptors.Limit) string {
	var flags []string
	add := func(is bool, name string) {
		if is {
			flags = append(flags, name)
		}
	}
	add(l.Shadow, "shadow_mode")
	add(l.Quota, "quota_mode")
	add(l.Debit, "debit")
	add(l.Detailed, "detailed_metric")
	add(l.Rule.Scope != rule.Global, "scope "+string(l.Rule.Scope))
	add(l.Name != "", "name "+command.Legible(l.Name))
	add(len(l.Replaces) > 0, "replaces "+command.Legible(strings.Join(l.Replaces, " ")))
	if len(flags) == 0 {
		return "-"
	}
	return strings.Join(flags, ", ")
}
