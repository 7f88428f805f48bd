// SPDX-License-Identifier: MIT

// Package admin is the administrators' listener: its guard and its token, /metrics, health and /status, resets and
// peeks, and how commands ask it. It knows no server of requests. Open guard.go first, which all requests pass.
package admin
