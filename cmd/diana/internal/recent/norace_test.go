// SPDX-License-Identifier: MIT

//go:build !race

package recent

const raceEnabled = false
