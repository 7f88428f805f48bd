// Package a is an example.
//
//	who comes late, in a code block, is not prose
package a

// Take consumes n tokens if all rules allow it. It returns an error if the store is closed.
func Take() {}

var judge int // the index of the current rule

// T has comments behind its fields, and each is a sentence of its own.
type T struct {
	A int // the first of the fields, which has a rather long comment for a field
	B int // the second of the fields, which has a rather long comment for a field
	C int // the third of the fields, which has a rather long comment for a field
}

const url = "http://example.com" // "
