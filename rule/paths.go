// SPDX-License-Identifier: MIT

package rule

import "net/http"

// Paths are the settings for reading paths. The zero value has the defaults.
type Paths struct {
	Strange Strange
	Case    Case
}

// Strange says what happens to a request with a path that no honest client sends. A path of
// more than 8 KiB is always refused.
type Strange int

// The values of Strange.
const (
	RefuseStrange Strange = iota // the request fails with a PathError
	JudgeStrange                 // all entries for its method evaluate the request
)

func (s Strange) String() string { return [...]string{"refuse", "judge"}[s] }

// Case says whether letter case matters in a path.
type Case int

// The values of Case.
const (
	FoldCase  Case = iota // ASCII letters match in either case
	ExactCase             // letters match only in the same case
)

func (c Case) String() string { return [...]string{"fold", "exact"}[c] }

// A PathError is the reason why Diana refuses a path.
type PathError struct{ Reason string }

func (e *PathError) Error() string { return e.Reason }

// Status returns the HTTP status for a request with this path: 414 if the path is too long,
// 400 otherwise.
func (e *PathError) Status() int {
	if e == ErrPathLong {
		return http.StatusRequestURITooLong
	}
	return http.StatusBadRequest
}

// ErrPathLong is the reason to refuse a path of more than 8 KiB.
var ErrPathLong = &PathError{"the path is longer than 8192 bytes"}
