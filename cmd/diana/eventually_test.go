// SPDX-License-Identifier: MIT

package main

import "time"

// patience is how long a test waits for an event. A test that passes never waits that long.
const patience = 20 * time.Second

// eventually waits until a condition is true, and reports whether it became true.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
