// SPDX-License-Identifier: MIT

package rule

import (
	"net/http"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/source"
)

// Vocabulary is what the words of a configuration mean. A program that brings its
// own algorithms, actors, units or sources appends them to those of Diana before it loads
// a configuration; nothing is registered anywhere.
type Vocabulary struct {
	Algorithms []limit.Algorithm // the first is the default
	Actors     []ActorKind
	Units      []Unit
	Sources    []source.Kind // of configuration centres
}

// Unit is a named length of time.
type Unit struct {
	Name   string
	Length time.Duration
}

// ActorKind is a way to find who makes a request.
type ActorKind struct {
	Kind  string // as in "ip", or "header" of "header:X-Device-Id"
	Named bool   // whether a name follows, behind a colon

	// Find returns who makes the request, "" if the request does not tell, or [Unclear].
	// name is the part behind the colon. It is called at most once a rule and
	// request, concurrently for different requests. Nil: only [Request.Actors] tells.
	Find func(r *http.Request, name string) string

	// Canonical returns what Find returns for a value that Except or Overrides of a rule
	// name, however it is spelled there. name is as for Find. Nil: values are compared as
	// they are.
	Canonical func(value, name string) string
}

// Unclear is what [ActorKind.Find] returns for a request that names several actors, or one in
// a way that servers read differently. The client's address counts then, and no further source
// is asked: otherwise a client could be served as one actor and counted as another.
const Unclear = "\x00unclear"

// Units returns the units of time that have names.
func Units() []Unit {
	return []Unit{
		{"second", time.Second},
		{"minute", time.Minute},
		{"hour", time.Hour},
		{"day", 24 * time.Hour},
	}
}

// Default returns the words that Diana knows by itself, without sources, which may need
// more than the standard library: diana.Vocabulary has them. Beside these actors a
// configuration can name "all", which is everyone together, and "ip", "account" and
// "device", which [Identity] defines.
func Default() Vocabulary {
	return Vocabulary{
		Algorithms: limit.Algorithms(),
		Units:      Units(),
		Actors: []ActorKind{
			{Kind: "header", Named: true, Find: headerValue, Canonical: canonicalField},
			{Kind: "cookie", Named: true, Find: cookieValue, Canonical: canonicalPair},
			{Kind: "query", Named: true, Find: queryValue, Canonical: canonicalPair},
			{Kind: "host", Find: hostValue, Canonical: canonicalHost},
		},
	}
}

// Algorithm returns the algorithm of that name.
func (v Vocabulary) Algorithm(name string) (limit.Algorithm, bool) {
	for _, a := range v.Algorithms {
		if a.Called(name) {
			return a, true
		}
	}
	return limit.Algorithm{}, false
}

// Unit returns the length of a unit of that name.
func (v Vocabulary) Unit(name string) (time.Duration, bool) {
	for _, u := range v.Units {
		if u.Name == name {
			return u.Length, true
		}
	}
	return 0, false
}
