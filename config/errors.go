// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake at its place.
type Error struct {
	File         string
	Line, Column int // from 1; columns count characters
	Message      string
}

func (e Error) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors are all mistakes in a configuration, sorted by place.
type Errors []Error

// maxShown is how many errors a message lists.
const maxShown = 100

// Error returns one line for each error. It lists at most a hundred errors, and then the number of
// the others.
func (e Errors) Error() string {
	var lines []string
	for _, one := range e[:min(len(e), maxShown)] {
		lines = append(lines, one.String())
	}
	if more := len(e) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// sorted returns the errors by place, each once. The reader reports an error behind two aliases
// twice.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(e)
}
