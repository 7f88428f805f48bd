// SPDX-License-Identifier: MIT

//go:build race

package answer

const raceEnabled = true
