// SPDX-License-Identifier: MIT

// Package dianacaddy is the module http.handlers.diana for Caddy. A program that builds Caddy imports it:
//
//	import _ "github.com/diana-limiter/diana/adapters/caddy"
//
// The module uses [diana.Limiter.Handler], so all that it promises holds: a request waits, is
// diverted, keeps a bandwidth, and releases its slots when its handlers return or panic. A rule with charge
// counts the status of an error that a handler of Caddy returns. If an error route then answers with
// another status, the limiter does not see it.
//
// Rules see the path as the client has sent it, unless the directive is placed behind one that rewrites it.
package dianacaddy
