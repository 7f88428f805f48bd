// SPDX-License-Identifier: MIT

//go:build race

package jsonscan

const raceEnabled = true
