// Package a is an example.
//
//	who comes late, in a code block, is not prose
package a

// Take consumes n tokens if all rules allow it. It returns an error if the store is closed.
func Take() {}

var judge int // the index of the current rule
