// SPDX-License-Identifier: MIT

//go:build !race

package diana_test

const raceEnabled = false
