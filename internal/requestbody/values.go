// SPDX-License-Identifier: MIT

// Package requestbody reads values from the JSON body of a request, and changes the body so that it asks
// for the usage of tokens.
package requestbody

import (
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/jsonscan"
	"github.com/diana-limiter/diana/rule"
)

// MaxSize is the size of the largest body that is read, in bytes.
const MaxSize = 1 << 20

// A Mistake says why a body cannot be read.
type Mistake string

// The mistakes of a body.
const (
	NotJSON Mistake = "is not JSON"
	Twice   Mistake = "has a key twice that a rule reads"
	Folded  Mistake = "spells stream, stream_options or include_usage in other letters"
)

func (m Mistake) Error() string { return "the request's body " + string(m) }

// Value is what a body has at a JSON pointer. The zero value means that it has nothing there.
type Value struct {
	// Actor is a string as it is, a whole number in digits, true or false. It is empty for null. It is
	// rule.Unclear for values that servers may read in several ways. These are an array, an object, a number
	// that is not whole or has more than 20 digits, and a text of more than 4 KiB.
	Actor string

	// Count is a whole number from 1. Above bounds.MaxN it is that. It is 0 for all other values.
	Count int64

	Given  bool // the body has a value there, perhaps null
	Folded bool // its key is written in other letters
}

// Query is what rules want to know of a body, and demand of it.
type Query struct {
	Pointers []string // JSON pointers, each once
	Demands  []Demand
	Optional bool // a body that is no JSON has nothing
}

// Reading is what a body says.
type Reading struct {
	Values  []Value // by the index of Query.Pointers
	Size    int     // bytes of the body
	Prompts int64   // texts in "prompt", or 1
}

// Read reads a body. It is nil for a request without one. The error is a Mistake. Keys match in
// any letter case: otherwise a client could choose the case that its server accepts, and would have no
// actor here.
func Read(body []byte, q *Query) (Reading, error) {
	read := Reading{Size: len(body), Prompts: 1}
	if len(body) > 0 {
		var err error
		switch read.Values, err = values(body, q.Pointers); {
		case err == NotJSON && q.Optional: //nolint:errorlint // values wraps no error
			return Reading{}, nil
		case err != nil:
			return Reading{}, err
		}
		read.Prompts = prompts(body, q)
	}
	for i := range q.Demands {
		if err := q.Demands[i].check(body, q.Pointers, read.Values); err != nil {
			return Reading{}, err
		}
	}
	return read, nil
}

// values returns the values of a body at JSON pointers, by their index.
func values(body []byte, pointers []string) ([]Value, error) {
	s := jsonscan.NewFolding(actors.MostValue, pointers...)
	if s.ScanAll(body) != nil {
		return nil, NotJSON
	}
	if s.Twice() {
		return nil, Twice
	}
	values := make([]Value, len(pointers))
	for i := range values {
		v := s.Value(i)
		if v.Folded && slices.Contains(UsagePointers, pointers[i]) {
			return nil, Folded
		}
		values[i] = newValue(v)
		values[i].Given, values[i].Folded = v.Kind != jsonscan.None, v.Folded
	}
	return values, nil
}

func newValue(v jsonscan.Value) Value {
	switch {
	case v.Kind == jsonscan.None || v.Kind == jsonscan.Null:
		return Value{}
	case v.Cut || v.Kind == jsonscan.Container:
		return Value{Actor: rule.Unclear}
	case v.Kind != jsonscan.Number:
		return Value{Actor: string(v.Text)}
	}
	digits, negative, size := whole(string(v.Text))
	switch {
	case size == fraction, size == huge && negative:
		return Value{Actor: rule.Unclear}
	case size == huge:
		return Value{Actor: rule.Unclear, Count: bounds.MaxN}
	case negative:
		return Value{Actor: "-" + digits}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil { // 20 digits, or nearly
		n = bounds.MaxN
	}
	return Value{Actor: digits, Count: min(n, bounds.MaxN)}
}

// size says what kind of number a text is.
type size int

const (
	ordinary size = iota
	fraction      // not whole
	huge          // more than maxDigits
)

// maxDigits is the number of digits of the largest unsigned integer of 64 bits.
const maxDigits = 20

// whole returns the digits of a number of JSON if it is whole. 7, 7.0 and 70e-1 have the same digits, so
// that a client has one counter for all spellings. Zero is not negative.
func whole(number string) (digits string, negative bool, s size) {
	number, negative = strings.CutPrefix(number, "-")
	mantissa, power := number, ""
	if at := strings.IndexAny(number, "eE"); at >= 0 {
		mantissa, power = number[:at], number[at+1:]
	}
	before, after, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(before+after, "0")
	if digits == "" {
		return "0", false, ordinary
	}
	short := strings.TrimRight(digits, "0")
	zeros := len(digits) - len(short) - len(after) // behind short; negative: digits behind the point
	if power != "" {
		exponent, err := strconv.ParseInt(power, 10, 32)
		if err != nil { // out of range: no mantissa is long enough to matter
			exponent = max(exponent, -1<<31)
		}
		zeros += int(exponent)
	}
	switch {
	case zeros < 0:
		return "", negative, fraction
	case len(short)+zeros > maxDigits:
		return "", negative, huge
	}
	return short + strings.Repeat("0", zeros), negative, ordinary
}
