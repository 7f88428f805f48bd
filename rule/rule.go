// SPDX-License-Identifier: MIT

// Package rule holds what a configuration declares: rules, the URLs they apply to, and how to
// find the actor of a request. Its types are plain data. Package config reads them from YAML,
// and a program can also build them itself.
package rule

import (
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Scope names the store that counts the requests of a rule. The zero value means Local. A
// program can add stores of its own under other names.
type Scope string

// The scopes that every program has.
const (
	Local  Scope = "local"  // in this process
	Global Scope = "global" // in Redis, for all gateways together
)

func (s Scope) String() string {
	if s == "" {
		return string(Local)
	}
	return string(s)
}

// OnError says how a global rule decides while Redis is unreachable.
type OnError int

// The values of OnError.
const (
	Share  OnError = iota // in this process, with the limit divided by the number of gateways last known
	Whole                 // in this process, with the whole limit; a configuration says "local"
	Open                  // the rule allows every request
	Closed                // the rule refuses every request
)

func (o OnError) String() string { return [...]string{"share", "local", "open", "closed"}[o] }

// Rule limits how much an actor may use of a URL.
type Rule struct {
	Name      string // unique in a configuration, and the identity of the counters; if empty, made from the other fields
	Actor     []Actor
	Algorithm limit.Algorithm // the zero value means the first of the vocabulary
	Limit     limit.Limit
	Scope     Scope
	OnError   OnError // of a global rule
	Except    []Who   // clients that the rule skips; goes before Overrides
	Overrides []Override

	// Class is the header that names the class of a client, such as its plan. Its Kind is "header" if Diana
	// believes it only from a trusted proxy, like a cost, or "client" if anyone may write it. A program
	// names the class in [Request.Actors], under "class".
	//
	// Classes are the limits of classes, by the Value of Who. A client without a class, or of another one,
	// has the rule's own limit. An override of an actor goes before its class. All classes use the same
	// counters.
	Class   Actor
	Classes []Override

	Cost   Cost
	Charge []int // statuses of responses whose requests stay counted; if empty, see ChargeAll

	Shadow bool // a refusal is counted and has no other effect

	// ChargeAll counts a request whatever its response says. Without it and Charge, a response with another status
	// than 200 to 299 that names no usage refunds the request. That holds for the answers openai, anthropic, gemini
	// and JSON pointers.
	ChargeAll bool

	// Measure is until when an algorithm that adapts measures a request: "begin" is the first byte of the
	// response, "byte" that of its body, and "end" its end. Empty means the default of the program. HoldBegin
	// says that the request holds its slot until the response begins, and not to its end.
	HoldBegin bool
	Measure   string

	// Priority is the header that names the priority of a request, as Class names a class. A program names it in
	// [Request.Actors], under "priority". Priorities are the names, the highest first. No name or an unknown
	// one means the one in the middle.
	Priority   Actor
	Priorities []string

	// Wait is the longest time that a request over the limit waits before the rule refuses
	// it. It is at most 10 minutes, and 0 for algorithms without the key "wait".
	Wait time.Duration
}

// Mode returns how a configuration says Shadow: "enforce" or "shadow".
func (r *Rule) Mode() string {
	if r.Shadow {
		return "shadow"
	}
	return "enforce"
}

// ActorText returns the text of the actors that count together: "all", "ip", or "account+ip".
func (r *Rule) ActorText() string { return joinActors(r.Actor) }

// Override is another limit for some clients: an actor, a network, or a class.
type Override struct {
	Who             Who
	N, Burst, Queue int64 // replace those three of the rule's Limit

	// Exempt says that the rule skips the client, as for a member of Except. Then N, Burst and Queue do not
	// matter. A class cannot be exempt.
	Exempt bool

	// Until is when the override ends; the zero time means never. From then on the rule counts the client by
	// its own limit, or that of its class, even if a larger network has an override too.
	Until time.Time
}

// Entry is a URL with its rules and the bandwidth of its responses.
type Entry struct {
	URL       Pattern
	Rules     []Rule
	Bandwidth *Bandwidth // nil means no limit of speed
	Divert    *Divert    // the response to a request that a rule of this entry refuses; nil means a refusal

	// Refusal is the form of refusals, which the clients of an API understand: "openai", "anthropic", "gemini",
	// "jsonrpc", or "auto" for the one that the request says. Such a refusal has the status 429. A mistake in a body is
	// answered in the same form. Empty means a problem of RFC 9457, with the status of the configuration.
	Refusal string

	// CallStatus is the status of the answer to a refused call of JSON-RPC. 0 means 200, which clients expect.
	CallStatus int
}
