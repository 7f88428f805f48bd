// SPDX-License-Identifier: MIT

package rule

import (
	"net/http"
	"net/netip"
	"strings"
)

// Actor says what a rule counts by: everyone together ("all"), or each value of something
// that a request carries. Its text is Kind, or Kind:Name for a kind that has names.
type Actor struct {
	Kind string
	Name string
}

func (a Actor) String() string {
	if a.Name == "" {
		return a.Kind
	}
	return a.Kind + ":" + a.Name
}

// joinActors returns the text of actors that count together.
func joinActors(actors []Actor) string {
	if len(actors) == 0 {
		return All.String()
	}
	if len(actors) == 1 {
		return actors[0].String()
	}
	texts := make([]string, len(actors))
	for i, a := range actors {
		texts[i] = a.String()
	}
	return strings.Join(texts, "+")
}

// All is the actor that counts everyone together.
var All = Actor{Kind: "all"}

// ActorKind is a way to find the actor of a request. Programs add their own kinds to a
// vocabulary. Diana itself knows the kinds "all", "ip", "account" and "device"; the last two
// are defined by [Identity].
type ActorKind struct {
	Kind  string // such as "ip", or "header" of "header:X-Device-Id"
	Named bool   // whether a colon and a name follow the kind

	// Find returns the actor of the request, "" if the request has none, or [Unclear].
	// name is the text after the colon. Diana calls Find at most once per rule and request,
	// and concurrently for different requests. If Find is nil, only [Request.Actors] can
	// name the actor.
	Find func(r *http.Request, name string) string

	// Ask is Find for a [Native]. If Ask is nil, Find gets a copy of the request.
	Ask func(r Native, name string) string

	// Canonical returns the value that Find returns for an actor that Except or Overrides
	// of a rule name. name is the same as for Find. If Canonical is nil, values are compared
	// unchanged.
	Canonical func(value, name string) string

	// Proved says that nobody but the client itself can have the value. If Find is nil too, it is what a
	// credential of this kind says under the name, see [Request.Proofs].
	Proved bool

	// Check returns an error if the kind has no such name. If Check is nil, every name is one.
	Check func(name string) error
}

// Unclear is the result of [ActorKind.Find] for a request that names several actors, or names
// one in a way that servers read differently. Then the client's address counts, and Diana asks
// no further source. Otherwise a client could be served as one actor and counted as another.
const Unclear = "\x00unclear"

// Identity says how to find account and device, and which proxies to trust. With its zero
// value the actors account and device are the client's address.
type Identity struct {
	Account, Device []Actor        // tried in order; the client's address is the last resort
	TrustedProxies  []netip.Prefix // peers whose X-Forwarded-For counts
}

// Charge says that a request is to consume from what one actor may use under one rule. The actors,
// exceptions, overrides, classes and cost of the rule do not matter.
type Charge struct {
	Rule string // the name of the rule
	Key  string // of the actor: any text, hashed if over 1,024 bytes; that of a rule for all clients is empty

	// Cost is how much of the limit the request consumes. A negative cost refunds as much, if the
	// request is allowed. Zero consumes nothing, and its Verdict says what remains.
	Cost int64

	// Debit consumes also when the limit is used up, into debt. It never refuses the request; its
	// Verdict says whether the limit allowed it.
	Debit bool
}

// Request is what a limiter evaluates. Its zero value is a request for "/" by an unknown
// client.
//
// Only Handler reads the body of a request. Rules need it that count by it (actor "body:/model") or reserve
// by it (cost with a Reserve). A program that calls Take or Peek gives such values by Actors and Costs.
type Request struct {
	Method string
	Path   string // as the client sent it: escaped and not cleaned

	// OtherMethods and OtherPaths are what the request may be for a server that reads it in another
	// way. The rules of every method and path evaluate the request. Both are usually empty.
	OtherMethods []string
	OtherPaths   []string

	// Actors holds what the program knows about the client, by the text of an actor:
	// "account", "device", "ip", "header:X-Device-Id", "body:/model". Diana believes it over HTTP. The
	// class of the client has the text "class", see [Rule].
	Actors map[string]string

	// Costs holds what the program knows about the cost of the request, by the canonical
	// name of the header that a rule takes its cost from. A reservation has the Reserve of the rule's cost
	// as its name. Diana believes it over HTTP.
	Costs map[string]int64

	// Proofs hold the valid credentials of the client by the kinds of their actors, such as "key". If it is
	// nil, Diana verifies the credentials of HTTP, if its configuration says so.
	Proofs map[string]Proof

	// Charges name the rules that evaluate the request, in place of its method and path. It is for
	// programs that find the rules themselves. No two may have the same Rule and Key.
	Charges []Charge

	// HTTP is the request in which Diana looks for actors and costs that Actors and Costs
	// do not have. It may be nil.
	HTTP *http.Request

	// Native is asked in place of HTTP, if HTTP is nil. It may be nil too.
	Native Native
}
