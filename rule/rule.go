// SPDX-License-Identifier: MIT

// Package rule holds what a configuration says: rules, the URLs that they stand
// under, who an actor is, and the compiled, immutable [Set] that finds the rules
// of a request.
package rule

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Scope says where requests are counted.
type Scope int

// The values of Scope.
const (
	Local  Scope = iota // in this process
	Global              // in Redis, for all gateways
)

func (s Scope) String() string { return [...]string{"local", "global"}[s] }

// Mode says what a refusal by a rule does.
type Mode int

// The values of Mode.
const (
	Enforce Mode = iota // refuses the request
	Shadow              // is counted, and changes nothing
)

func (m Mode) String() string { return [...]string{"enforce", "shadow"}[m] }

// OnError says how a global rule is kept while Redis is out of reach.
type OnError int

// The values of OnError.
const (
	Share  OnError = iota // in this process, with the limit divided by the gateways last seen alive
	Whole                 // in this process, with the whole limit; written "local"
	Open                  // not at all: every request passes
	Closed                // every request is refused
)

func (o OnError) String() string { return [...]string{"share", "local", "open", "closed"}[o] }

// Rule is one promise: how much which actor may use of the URL it stands under.
type Rule struct {
	Name      string // unique in a Set, and the identity of the counters; empty: made from the other fields
	Actor     []Actor
	Algorithm limit.Algorithm
	Limit     limit.Limit
	Scope     Scope
	OnError   OnError // of a Global rule
	Mode      Mode
	Except    []Who // whom it does not judge, as if it were not there; goes before Overrides
	Overrides []Override
	Cost      Cost
	Charge    []int // statuses of answers whose requests stay counted; empty: all are

	// Wait is how long a request over the limit waits for its turn, at most, before it is
	// refused; 0 to MaxWait, and 0 for algorithms without the key "wait".
	Wait time.Duration

	// The rest is set by Compile.

	Index    int         // in Set.Rules; a variant has that of its rule
	Slot     int         // of each rule and variant another: Index, or behind those in Set.Variants
	URL      Pattern     // that it stands under
	Divert   *Divert     // of the entry that it stands in
	Meter    limit.Meter // keeps Limit
	Counters string      // names what is counted: equal in two Sets if the counts mean the same

	identity   string // of Counters, without the layout of the states
	who        []chain
	exceptions *exceptions // nil: none
}

// MaxWait is the longest Wait.
const MaxWait = 10 * time.Minute

// Entry is a URL, its rules, and how fast answers may be.
type Entry struct {
	URL       Pattern
	Rules     []Rule
	Bandwidth *Bandwidth // nil: as fast as it goes
	Divert    *Divert    // what a request gets that a rule of this entry refuses; nil: a refusal
}

// Divert is a cheaper answer than what was asked for. One of Body, File and Upstream is set.
type Divert struct {
	Status   int      // of the answer, 200 to 599; not with Upstream
	Type     string   // media type of the answer; empty: of a file by its name, else by what is in it
	Body     string   // text of the answer
	File     string   // a file that holds it
	Upstream *url.URL // server that is asked instead
}

// String returns the answer in a few words.
func (d *Divert) String() string {
	switch {
	case d == nil:
		return ""
	case d.Upstream != nil:
		return "to " + d.Upstream.String()
	case d.File != "":
		return fmt.Sprintf("%d with %s", d.Status, d.File)
	}
	return fmt.Sprintf("%d with a text of %d bytes", d.Status, len(d.Body))
}

// UnitName returns the unit of l as configurations write it.
func UnitName(unit time.Duration) string {
	for _, u := range Units() {
		if u.Length == unit {
			return u.Name
		}
	}
	return unit.String()
}

func (r *Rule) defaultName() string {
	rate := fmt.Sprint(r.Limit.N)
	if r.Algorithm.Uses("unit") {
		rate += "/" + UnitName(r.Limit.Unit)
	}
	return fmt.Sprintf("%s %s %s %s", r.URL, actorText(r.Actor), r.Algorithm.Name(), rate)
}

func actorText(actor []Actor) string { return strings.Join(actorTexts(actor), "+") }

// actorTexts returns the actors as texts. Joined by a plus two lists can be equal, because
// the name of a header can contain one.
func actorTexts(actor []Actor) []string {
	if len(actor) == 0 {
		return []string{All.String()}
	}
	texts := make([]string, len(actor))
	for i, a := range actor {
		texts[i] = a.String()
	}
	return texts
}
