// SPDX-License-Identifier: MIT

//go:build !linux

package measure

import "time"

// pin does nothing, because only Linux pins threads.
func pin(int) {}

// suspensions returns 0.
func suspensions() int64 { return 0 }

// OwnTime returns 0.
func OwnTime() time.Duration { return 0 }
