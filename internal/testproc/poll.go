// SPDX-License-Identifier: MIT

package testproc

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Patience is how long a server may take to start or to stop. It is long, because the machine
// may be busy with other tests.
const Patience = 20 * time.Second

// Poll calls done until it returns nil. After limit it returns the last error.
func Poll(limit time.Duration, done func() error) error {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := done()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		time.Sleep(pause)
	}
}

var errFalse = errors.New("the condition is still false")

// Becomes waits until condition returns true, and reports whether it did within Patience.
func Becomes(condition func() bool) bool { return becomes(condition) == nil }

// Eventually waits until condition returns true. After Patience the test fails.
func Eventually(t testing.TB, condition func() bool) {
	t.Helper()
	if err := becomes(condition); err != nil {
		t.Fatal(err)
	}
}

func becomes(condition func() bool) error {
	return Poll(Patience, func() error {
		if condition() {
			return nil
		}
		return errFalse
	})
}
