// SPDX-License-Identifier: MIT

//go:build !race

package config

const raceEnabled = false
