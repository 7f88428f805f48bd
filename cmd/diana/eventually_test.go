// SPDX-License-Identifier: MIT

package main

import (
	"errors"

	"github.com/diana-limiter/diana/internal/testproc"
)

// patience is how long a test waits for an event. A test that passes never waits that long.
const patience = testproc.Patience

// eventually waits until a condition is true, and reports whether it became true.
func eventually(condition func() bool) bool {
	return testproc.Poll(patience, func() error {
		if condition() {
			return nil
		}
		return errors.New("not yet")
	}) == nil
}
