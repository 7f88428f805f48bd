// SPDX-License-Identifier: MIT

//go:build race

package rate_test

const raceEnabled = true
