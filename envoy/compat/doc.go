// SPDX-License-Identifier: MIT

// Package compat tests the rate limit service of diana serve as a process, with real Redis.
//
// TestDifferential sends the same random requests to diana serve and to envoyproxy/ratelimit, and
// compares the answers. Every difference must be one that the migration guide declares. It needs
// the flag -all, which "make compat" sets. The other tests always run.
package compat
