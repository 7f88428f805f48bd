// SPDX-License-Identifier: MIT

//go:build race

package config

func init() { hostileSize /= 8 }
