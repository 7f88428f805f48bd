// SPDX-License-Identifier: MIT

//go:build race

package redisstore

const raceEnabled = true
