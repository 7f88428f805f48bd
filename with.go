// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// WithActor returns r with an actor that a filter has established, such as the account of a
// session that it has checked. [Limiter.Handler] and [Limiter.Take] believe it, whatever the
// client's header fields say. The filter passes on the request that is returned.
//
// kind is the actor's text as in a configuration: "account", "device", "ip", or the text of any
// other actor, such as "header:X-Device-Id". It is "class" for the class of the client, which picks the
// limit of rules with classes. Other text has no effect.
//
// An empty value says that the filter has found none. Then the header fields are not asked either;
// otherwise a client could choose its actor by sending no credentials. Rules count such a request by
// the client's address. Requests with an empty "ip" share one counter. An empty "class" is none.
//
// A value from the program and the same value from a header field or a cookie have different counters. So
// use one source for each actor.
//
// The context carries the actor. A request made with the context of r has it too.
func WithActor(r *http.Request, kind, value string) *http.Request {
	if name, ok := strings.CutPrefix(kind, "header:"); ok {
		kind = "header:" + http.CanonicalHeaderKey(name)
	}
	if value == "" {
		value = rule.Unclear
	}
	e := establishedIn(r.Context())
	e.actors = with(e.actors, kind, value)
	return r.WithContext(context.WithValue(r.Context(), establishedKey{}, e))
}

// WithCost returns r with a header that says what the request costs, under the rules with
// "cost: header:NAME". It replaces what the client has sent. It is for filters in front of
// [Limiter.Handler], which believes it. The filter passes on the request that is returned. n below 1
// counts as 1, and n above 1,000,000 as 1,000,000.
//
// header can also be the Reserve of a cost, such as "body:/max_tokens". Then WithCost sets no header, and
// Handler does not read the body for it.
func WithCost(r *http.Request, header string, n int64) *http.Request {
	header = http.CanonicalHeaderKey(header)
	e := establishedIn(r.Context())
	e.costs = with(e.costs, header, n)
	r = r.WithContext(context.WithValue(r.Context(), establishedKey{}, e))
	if strings.HasPrefix(header, "body:") {
		return r
	}
	r.Header = r.Header.Clone()
	r.Header.Set(header, strconv.FormatInt(n, 10))
	return r
}

// established is what filters have established about a request. Its maps never change.
type established struct {
	actors map[string]string     // as Request.Actors
	costs  map[string]int64      // as Request.Costs
	proofs map[string]rule.Proof // as Request.Proofs
}

// establishedKey is the key of an established in a request's context.
type establishedKey struct{}

func establishedIn(ctx context.Context) established {
	e, _ := ctx.Value(establishedKey{}).(established)
	return e
}

// with returns a copy of m with one more value.
func with[V any](m map[string]V, key string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// complete adds to r what filters have established about r.HTTP or r.Native. An actor that the caller has given
// wins, and so do the caller's costs as a whole.
func complete(r *Request) {
	var e established
	switch {
	case r.HTTP != nil:
		e = establishedIn(r.HTTP.Context())
	case r.Native != nil:
		e = establishedIn(r.Native.Context())
	default:
		return
	}
	if r.Costs == nil {
		r.Costs = e.costs
	}
	if r.Proofs == nil {
		r.Proofs = e.proofs
	}
	switch {
	case e.actors == nil:
	case r.Actors == nil:
		r.Actors = e.actors
	default:
		actors := maps.Clone(e.actors)
		for kind, value := range r.Actors {
			if value != "" { // an empty one counts as absent
				actors[kind] = value
			}
		}
		r.Actors = actors
	}
}
