// SPDX-License-Identifier: MIT

//go:build race

package memstore

const raceEnabled = true
