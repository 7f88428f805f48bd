// SPDX-License-Identifier: MIT

// Package decoders reads responses in br and zstd, for rules whose cost is known with the response, in 64 MiB that
// all responses share. It knows no rule. Open decoders.go first, then windows.go, which reads what a response
// declares, and growing.go, which lets a window grow.
package decoders
