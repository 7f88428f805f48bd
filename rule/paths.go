// SPDX-License-Identifier: MIT

package rule

import "net/http"

// Paths are the settings for reading paths. The zero value has the defaults.
type Paths struct {
	// JudgeStrange has all entries for its method evaluate a request with a path that no honest
	// client sends. By default such a request fails with a PathError. A path of more than 8 KiB
	// always fails.
	JudgeStrange bool

	// ExactCase compares the letters of paths in their case. By default ASCII letters match in
	// either case.
	ExactCase bool
}

// A PathError is the reason why Diana refuses a path.
type PathError struct {
	Reason  string
	TooLong bool // the path has more than 8 KiB
}

func (e *PathError) Error() string { return e.Reason }

// Status returns the HTTP status for a request with this path: 414 if the path is too long,
// 400 otherwise.
func (e *PathError) Status() int {
	if e.TooLong {
		return http.StatusRequestURITooLong
	}
	return http.StatusBadRequest
}
