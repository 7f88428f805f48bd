// SPDX-License-Identifier: MIT

// Package upstream sends requests to the servers behind the gateway. It has the proxy and what that changes in a
// request and its answer, the pool of several servers, retries, and names for the failures of a server. It knows no
// rule. Open proxy.go first, and then pool.go.
package upstream
