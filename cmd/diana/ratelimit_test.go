// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"strings"
	"testing"
)

// The name of the program, or a path as its first argument, is the command ratelimit.
func TestArguments(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                        "",
		"diana":                   "",
		"/usr/bin/diana check x":  "check x",
		"ratelimit":               "ratelimit",
		"/bin/ratelimit --help":   "ratelimit --help",
		"/diana /bin/ratelimit":   "ratelimit",
		"diana ratelimit --help":  "ratelimit --help",
		"diana check ratelimit":   "check ratelimit",
		"diana check ./ratelimit": "check ./ratelimit",
	} {
		if got := arguments(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %s", line, got, want)
		}
	}
}
