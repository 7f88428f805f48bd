// SPDX-License-Identifier: MIT

package main

import (
	"testing"
	"time"
)

// A system is accused only of what is certain, and of all of that.
func TestJudge(t *testing.T) {
	answers := func(n int, kind answerKind, sent, received int) (all []answer) {
		for range n {
			all = append(all, answer{time.Duration(sent) * time.Millisecond, time.Duration(received) * time.Millisecond, kind})
		}
		return all
	}
	for _, tc := range []struct {
		name          string
		bucket        bool
		answers       [][]answer
		beyond, short float64
	}{
		{"a window", false, [][]answer{answers(1000, answerAllowed, 0, 1), answers(1, answerRefused, 600, 601)}, 0, 0},
		{"a window and 2", false, [][]answer{answers(1001, answerAllowed, 0, 1), answers(1, answerAlone, 600, 601)}, 2, 0},
		{"a window's needless refusal", false, [][]answer{answers(997, answerAllowed, 0, 1), answers(1, answerRefused, 600, 601)}, 0, 3},
		{"a bucket, and what drips in 600 ms", true, [][]answer{answers(1009, answerAllowed, 0, 1), answers(1, answerAllowed, 600, 601)}, 0, 0},
		{"a bucket and 3", true, [][]answer{answers(1012, answerAllowed, 0, 1), answers(1, answerAllowed, 600, 601)}, 3, 0},
		{"slow answers may explain it", true, [][]answer{answers(1013, answerAllowed, 0, 800)}, 0, 0},
		{"a bucket's needless refusal", true, [][]answer{answers(1000, answerAllowed, 0, 1), answers(1, answerRefused, 602, 603)}, 0, 8},
		{"nobody is refused", false, [][]answer{answers(10, answerAllowed, 0, 1)}, 0, 0},
	} {
		var all []answer
		for _, a := range tc.answers {
			all = append(all, a...)
		}
		n := counts(all, 0, time.Hour)
		if b, s := (&exactSystem{bucket: tc.bucket}).assess(all, n[answerAllowed]+n[answerAlone]); b != tc.beyond || s != tc.short {
			t.Errorf("%s: %v beyond and %v short, want %v and %v", tc.name, b, s, tc.beyond, tc.short)
		}
	}
}
