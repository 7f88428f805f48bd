// SPDX-License-Identifier: MIT

package rule

import (
	"context"
	"net/http"
)

// Native is a request as a framework has it. Diana asks it for what the rules of the request read, and for nothing
// else. So an adapter need not copy each request as an [http.Request]. One goroutine at a time asks, until the
// Decision is done. The texts that it gets must not change before.
type Native interface {
	// Context is that of the request. It has what diana.WithActor and diana.WithCost have established.
	Context() context.Context

	// Field returns the lines of a header field in their order, or nil. The name is in canonical form, and never Host.
	Field(name string) []string

	Host() string  // as the client sent it, with a port if it sent one
	Query() string // without the question mark, as the client sent it
	Peer() string  // address of the TCP peer, with or without a port

	// HTTP returns a copy of the request, for an [ActorKind] without Ask. It is called only if a rule needs it, and
	// once for each decision.
	HTTP() *http.Request
}
