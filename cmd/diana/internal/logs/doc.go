// SPDX-License-Identifier: MIT

// Package logs writes the program's log: its format, the names of clients in it, one line for each request with
// the request's ID, and what net/http and the limiter report. It knows no server. Open logging.go first.
package logs
