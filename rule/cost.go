// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

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
//
// With an Answer, the true cost is known when the response is. Until then N is reserved: the request is
// charged N at once, like any cost, all or nothing with its other rules. When the true cost is known, the
// difference is debited, into debt if need be, or refunded. A response without a readable cost keeps the
// larger of N and the cost that was read.
//
// With a Reserve, the number that it names in the body of the request is reserved in place of N, if it is
// whole and at least 1. Above 1,000,000,000 it counts as that.
type Cost struct {
	N      int64  // 1 to 1,000,000, or to limit.Algorithm.MaxN; with an Answer to 1,000,000,000; 0 means 1; ignored if Header is set
	Header string // in canonical form; empty means that N counts

	// Answer is the place of the true cost. Empty means that the cost is known before.
	//
	//	openai, anthropic, gemini       the tokens that such a response reports, streamed or not
	//	/usage/total_tokens             a JSON pointer (RFC 6901) to a number in the response
	//	header:NAME, trailer:NAME       a number in a field of the response
	//	bytes                           the length of the body, as it is sent
	//	duration                        the milliseconds until the response ends
	Answer string

	// Reserve is the place of the reservation in the request: "body:" and a JSON pointer, such as
	// body:/max_tokens. It needs an Answer. Diana takes the number from [Request.Costs] if Reserve is a key
	// there. Otherwise only Handler reads it, see [Request]. Empty means that N is reserved.
	Reserve string

	// Reservation is what the request reserves by its whole body, in place of N and Reserve. Nil means N or Reserve.
	Reservation *Reservation

	Client bool // believe the Header from any peer

	// IncludeUsage has Handler ask for the usage in requests for a stream. It needs the Answer "openai". A
	// JSON object with "stream": true gets "include_usage": true in its "stream_options". A client that has not
	// asked for the usage does not receive it. A rule in shadow mode changes no request.
	IncludeUsage bool

	// AnyBody has Handler pass on a body as it is that IncludeUsage cannot change, because it is no JSON or too large.
	// Otherwise such a request is refused.
	AnyBody bool

	Weights *Weights // what a token of each kind costs; nil means 1 each

	// Scale is what the number of an Answer that is a JSON pointer is multiplied by, such as 1,000,000 for a price.
	// 0 means 1. The product is rounded up.
	Scale int64

	// After is how long Handler reads a stream on when its client has disconnected, to learn the usage. It is 0 to
	// a minute.
	After time.Duration
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
		return fmt.Errorf("expected the name of a header, found %q", name)
	}
	*c = Cost{Header: http.CanonicalHeaderKey(name), Client: kind == "client"}
	return nil
}

// String returns a text that UnmarshalText reads, except for a cost with an Answer or an N over 1,000,000.
func (c Cost) String() string {
	switch {
	case c.Answer != "":
		return c.answerText()
	case c.Header == "":
		return strconv.FormatInt(max(c.N, 1), 10)
	case c.Client:
		return "client:" + c.Header
	}
	return "header:" + c.Header
}

// answerText returns a cost with an Answer as a configuration writes it.
func (c Cost) answerText() string {
	text := fmt.Sprintf("{answer: %s, reserve: ", c.Answer)
	switch n := strconv.FormatInt(max(c.N, 1), 10); {
	case c.Reservation != nil:
		text += c.Reservation.String()
	case c.Reserve != "":
		text += c.Reserve + ", or: " + n
	default:
		text += n
	}
	if c.Weights != nil {
		text += ", weights: " + c.Weights.String()
	}
	if c.Scale > 1 {
		text += fmt.Sprintf(", scale: %d", c.Scale)
	}
	if c.IncludeUsage && !c.AnyBody || !c.IncludeUsage && c.Answer == "openai" {
		text += fmt.Sprintf(", include_usage: %v", c.IncludeUsage)
	}
	if c.After != 10*time.Second && c.inBody() {
		text += ", after: " + c.After.String()
	}
	return text + "}"
}

// inBody reports whether the Answer is in the body of a response.
func (c Cost) inBody() bool {
	return c.Answer != "bytes" && c.Answer != "duration" && !strings.HasPrefix(c.Answer, "header:") && !strings.HasPrefix(c.Answer, "trailer:")
}
