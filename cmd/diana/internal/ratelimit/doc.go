// SPDX-License-Identifier: MIT

// Package ratelimit serves in place of envoyproxy/ratelimit: it takes the environment of that program, and answers at
// its addresses. The decisions are those of package envoy. Open environment.go first.
package ratelimit
