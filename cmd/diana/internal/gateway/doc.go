// SPDX-License-Identifier: MIT

// Package gateway is the running program: it puts the limiter between clients and upstreams, has a listener for
// administrators and for other gateways, and ends without a lost request. It knows no algorithm. Open gateway.go
// first, which builds everything, then run.go, which serves and drains.
package gateway
