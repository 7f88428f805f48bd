// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake at its place. The last one of [Errors] can stand for many, and has no place.
type Error struct {
	File         string
	Line, Column int // from 1; columns count characters; 0: it stands for others
	Message      string

	more int // how many it stands for
}

func (e Error) String() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors are the mistakes in a configuration, sorted by place. They are the first hundred. If there are more, the
// last one has no place, and says how many: "and 12 more".
type Errors []Error

// maxErrors is how many mistakes Errors name.
const maxErrors = 100

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// First returns the first errors in the order of e, and one for all others if there are more than maxErrors.
func (e Errors) First() Errors {
	var first Errors
	more := 0
	for _, one := range e {
		switch {
		case one.more > 0:
			more += one.more
		case len(first) < maxErrors:
			first = append(first, one)
		default:
			more++
		}
	}
	if more > 0 {
		first = append(first, Error{File: first[0].File, Message: fmt.Sprintf("and %d more", more), more: more})
	}
	return first
}

// Sorted returns the First errors by place, each once. A reader reports an error behind two aliases twice.
func (e Errors) Sorted() Errors {
	e = slices.Clone(e)
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(e, func(a, b Error) bool { return a == b && a.more == 0 }).First()
}

// Add adds an error to those that a reader collects, and keeps no more than the first ones in memory.
func (e *Errors) Add(one Error) {
	if *e = append(*e, one); len(*e) >= 4*maxErrors {
		*e = e.Sorted()
	}
}
