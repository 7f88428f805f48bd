// SPDX-License-Identifier: MIT

package plan

import (
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// mostLines is the largest number of cost headers that Diana reads in one request.
const mostLines = 32

// costOf returns the cost of a request under a rule, see [rule.Cost].
func costOf(c rule.Cost, identity *rule.Identity, req *rule.Request) int64 {
	if c.Reserve != "" {
		if n := req.Costs[c.Reserve]; n > 0 {
			return min(n, bounds.MaxN)
		}
		return c.N
	}
	name := c.Header
	if name == "" {
		return c.N
	}
	if n, ok := req.Costs[name]; ok {
		return min(max(n, 1), bounds.MaxCost)
	}
	lines := linesOf(req, name)
	if len(lines) == 0 || !c.Client && !trustsPeer(identity, req) {
		return 1
	}
	if len(lines) > mostLines {
		return bounds.MaxCost
	}
	most := int64(1)
	for _, line := range lines {
		most = max(most, readCost(line))
	}
	return most
}

// trustsPeer reports whether the TCP peer of a request is a trusted proxy.
func trustsPeer(id *rule.Identity, r *rule.Request) bool {
	peer, ok := peerOf(r)
	return ok && trusts(id, peer)
}

// longestCost is the longest cost header, in bytes, that Diana reads as a number.
const longestCost = 64

// readCost returns the cost in one line of a header. An empty line costs 1.
func readCost(line string) int64 {
	if len(line) > longestCost {
		return bounds.MaxCost
	}
	if line = httptext.Trim(line); line == "" {
		return 1
	}
	if positive, negative := strings.CutPrefix(line, "-"); negative {
		if _, ok := httptext.Whole(positive); ok {
			return 1
		}
	}
	if n, ok := httptext.Whole(line); ok {
		return min(max(n, 1), bounds.MaxCost)
	}
	return bounds.MaxCost
}
