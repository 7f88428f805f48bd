// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// MaxCost is the most that a request can cost.
const MaxCost = 1_000_000

// Cost is what a request counts under a rule: N, or what a header of the request says.
// The zero value is 1.
//
// A header is believed if [Request.Costs] has it, or if the TCP peer is a trusted proxy,
// which must set or remove it; else it is as if it were not there. One that is not there
// is a cost of 1. With several of the name the largest counts, because upstreams differ in which
// they read. A number out of range counts as the nearest that is in it. What is no whole
// number in digits, and more than 64 bytes or 32 lines, counts as MaxCost; otherwise a client
// could corrupt the header to pay less.
type Cost struct {
	N      int64  // 1 to MaxCost; 0 means 1. Without meaning if there is a Header
	Header string // in its canonical form; empty: none
	Client bool   // the header is believed whoever the peer is
}

// ParseCost returns the cost that text names: a number in digits, header:NAME, or
// client:NAME for a header that clients may write. The error says what was expected.
func ParseCost(text string) (Cost, error) {
	kind, name, _ := strings.Cut(text, ":")
	if kind != "header" && kind != "client" {
		n, ok := digits(text)
		if !ok || n < 1 || n > MaxCost {
			return Cost{}, fmt.Errorf("expected 1 to %d, header:NAME or client:NAME", MaxCost)
		}
		return Cost{N: n}, nil
	}
	if !token(name) {
		return Cost{}, fmt.Errorf("%q is not a name of a header", name)
	}
	return Cost{Header: http.CanonicalHeaderKey(name), Client: kind == "client"}, nil
}

func (c Cost) String() string {
	switch {
	case c.Header == "":
		return strconv.FormatInt(max(c.N, 1), 10)
	case c.Client:
		return "client:" + c.Header
	}
	return "header:" + c.Header
}

// CostOf returns what the request counts under the rule.
func (s *Set) CostOf(r *Rule, req *Request) int64 {
	name := r.Cost.Header
	if name == "" {
		return r.Cost.N
	}
	if n, ok := req.Costs[name]; ok {
		return min(max(n, 1), MaxCost)
	}
	if req.HTTP == nil {
		return 1
	}
	lines := req.HTTP.Header[name]
	if len(lines) == 0 || !r.Cost.Client && !s.identity.trustsPeer(req.HTTP) {
		return 1
	}
	if len(lines) > mostLines {
		return MaxCost
	}
	most := int64(1)
	for _, line := range lines {
		most = max(most, readCost(line))
	}
	return most
}

func (id *Identity) trustsPeer(r *http.Request) bool {
	peer, ok := parseIP(r.RemoteAddr)
	return ok && id.trusted(peer)
}

// longestCost is the longest line, in bytes, that is read as a number.
const longestCost = 64

// readCost reads a header's line. An empty one says nothing.
func readCost(line string) int64 {
	if len(line) > longestCost {
		return MaxCost
	}
	if line = trim(line); line == "" {
		return 1
	}
	if positive, negative := strings.CutPrefix(line, "-"); negative {
		if _, ok := digits(positive); ok {
			return 1
		}
	}
	if n, ok := digits(line); ok {
		return min(max(n, 1), MaxCost)
	}
	return MaxCost
}

// digits reads a whole number that is written in digits alone; one that is too large for
// an int64 is the largest.
func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseInt(s, 10, 64) // the largest with its error
	return n, true
}
