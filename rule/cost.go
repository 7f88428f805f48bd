// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/httptext"
)

// Cost is what a request counts under a rule: N, or the number in a header of the request.
// The zero value is 1.
//
// Diana takes the cost from [Request.Costs] if the header is in there. Otherwise it believes the
// header only if the TCP peer is a trusted proxy, which must set or remove the header. A header
// that is missing or not believed is a cost of 1. If a request has several such headers, the
// largest number counts, because upstreams differ in which one they read. A number that is out of
// range counts as the nearest number in range. A line that is not a whole number in digits, a line
// of more than 64 bytes, and more than 32 lines count as 1,000,000. Otherwise a client could corrupt
// the header to pay less.
type Cost struct {
	N      int64  // 1 to 1,000,000, or to limit.Algorithm.MaxN; 0 means 1; ignored if Header is set
	Header string // in canonical form; empty means that N counts
	Client bool   // believe the header from any peer
}

// UnmarshalText reads a cost: a number in digits, header:NAME, or client:NAME for a header that
// clients may write. The error says what was expected.
func (c *Cost) UnmarshalText(data []byte) error {
	text := string(data)
	kind, name, _ := strings.Cut(text, ":")
	if kind != "header" && kind != "client" {
		n, ok := httptext.Whole(text)
		if !ok || n < 1 || n > bounds.MaxCost {
			return fmt.Errorf("expected 1 to %d, header:NAME or client:NAME", bounds.MaxCost)
		}
		*c = Cost{N: n}
		return nil
	}
	if !httptext.IsToken(name) {
		return fmt.Errorf("%q is not a name of a header", name)
	}
	*c = Cost{Header: http.CanonicalHeaderKey(name), Client: kind == "client"}
	return nil
}

// String returns a text that UnmarshalText reads, unless N is more than 1,000,000.
func (c Cost) String() string {
	switch {
	case c.Header == "":
		return strconv.FormatInt(max(c.N, 1), 10)
	case c.Client:
		return "client:" + c.Header
	}
	return "header:" + c.Header
}
