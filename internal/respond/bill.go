// SPDX-License-Identifier: MIT

package respond

import (
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/httptext"
)

// Bill is for a response that says what it has cost.
type Bill struct {
	Sources  []answer.Source
	Decoders map[string]answer.Decoder // of content codings beside gzip, by name

	// Settle gets what has been read of the cost. It is called before the byte or event that ends the response is
	// sent, and with last at the end. The last call is left out if all costs were known, and nothing has
	// followed. The Reader is nil if the response has not begun. complete says that the response is
	// whole, and its cost the true one. Settle reports whether all costs are known. status is 0 if the client has
	// disconnected before it was known.
	Settle func(r *answer.Reader, status int, complete, last bool) (known bool)
}

// billing is the state of a response with a Bill.
type billing struct {
	*Bill
	reader  *answer.Reader // nil until the status is known
	status  int
	left    int64 // bytes of the body that are missing; -1: nobody knows
	none    bool  // the response has no body, whatever the handler writes
	settled bool  // all costs are known and charged, and nothing has followed
	failed  bool  // the client does not get the response
}

// begin is called when the header is complete.
func (b *billing) begin(h http.Header, bodiless bool) {
	b.reader = answer.NewReader(b.Sources, h, b.Decoders)
	b.left = -1
	if n, ok := httptext.Whole(h.Get("Content-Length")); ok {
		b.left = n
	}
	if b.none = b.none || bodiless; b.none {
		b.left = 0
	}
	if b.left == 0 {
		b.settle()
	}
}

// read reads the next bytes of the body, and returns how many of them the client may have before the response is
// settled: all, unless the response ends with them.
func (b *billing) read(p []byte) (before int) {
	if b.none || len(p) == 0 {
		return len(p)
	}
	b.settled = false
	before, _ = b.reader.Write(p)
	if b.left >= 0 {
		if b.left = max(b.left-int64(len(p)), 0); b.left == 0 {
			before = min(before, len(p)-1)
		}
	}
	return before
}

// settle settles a response that is whole, but for its trailer.
func (b *billing) settle() { b.settled = b.Settle(b.reader, b.status, true, false) }

// end is called when the handler has returned, or panicked.
func (b *billing) end(h http.Header, returned bool) {
	complete := returned && !b.failed
	if b.reader == nil && complete { // net/http answers with 200 and this header
		b.begin(h, true)
	}
	if b.reader != nil {
		complete = complete && b.left <= 0
		var trailer http.Header
		if complete {
			trailer = trailerOf(h)
		}
		b.reader.End(trailer)
	}
	if !b.settled {
		b.Settle(b.reader, b.status, complete, true)
	}
}

// trailerOf returns the fields that net/http sends as the trailer of a response.
func trailerOf(h http.Header) http.Header {
	trailer := http.Header{}
	for _, line := range h["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(httptext.Trim(name))
			trailer[name] = h[name]
		}
	}
	for name, lines := range h {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[http.CanonicalHeaderKey(name)] = lines
		}
	}
	return trailer
}
