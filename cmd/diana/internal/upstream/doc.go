// SPDX-License-Identifier: MIT

// Package upstream sends requests to the servers behind the gateway. It has the proxy and what that changes in a
// request and its answer, the pool of several servers, retries, and names for the failures of a server. It knows no
// rule. Open proxy.go first, then pool.go, and transport.go for
// connections. The pool is nil if there is one server.
package upstream
