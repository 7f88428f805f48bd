// SPDX-License-Identifier: MIT

// Package clientconn ends connections and streams of clients that hold a request up: that send no body, or take
// no answer. It knows no rule and no upstream. Open conn.go first, which is HTTP/1.1, and then stream.go, which is
// HTTP/2.
package clientconn
