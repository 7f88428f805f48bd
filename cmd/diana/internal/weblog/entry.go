// SPDX-License-Identifier: MIT

// Package weblog reads the access logs of web servers.
//
// A line has one of three forms, which the package recognises for each line:
//
//   - the combined form of nginx and Apache, or its beginning, the common form
//   - a JSON object
//   - key=value, which diana serve writes
//
// Files may be compressed by gzip. The package merges several files by time.
//
// # Memory
//
// The package reads text in blocks. The strings of an [Entry] are parts of a block, so a line costs
// no memory of its own. The memory of entries that are being sorted is bounded, see order.
package weblog

import (
	"net/http"
	"slices"
	"strings"
)

// Entry is a request of the past: what it was, what its response was, and how the gateway decided it. It is one of a
// log, which says a part of this, or one that the gateway remembers. It is valid until the next one is read.
type Entry struct {
	Start int64 // when the request came, in microseconds since the Unix epoch
	Whole bool  // the time is in whole seconds

	Method string
	Target string // as in the request line
	Query  string // of a Target without one; "" if unknown
	Host   string // "" if unknown
	Remote string // address of the client; "" if unknown

	Response

	// Account and Device are what diana serve found; "" if it found none, or if another program
	// wrote the line.
	Account, Device string

	// Headers holds the request's headers, by Names.Headers; "" for those that the line lacks.
	Headers []string

	// The gateway remembers these of a request. No log has them.
	Actors  map[string]string // as diana.Request.Actors; nil: unknown
	Costs   map[string]int64  // as diana.Request.Costs
	Delayed int64             // microseconds that the request waited after its charge
	Allowed bool
	Met     []Met // what the request met under its rules, in their order; nil: unknown

	Own        bool // diana serve wrote the line
	File, Line int  // File is the index in Reader.Files

	read int64 // bytes of text that were read up to this entry, of all files
}

// Response is the response to a request, as far as it is known.
type Response struct {
	Duration int64 // microseconds that the request ran after its wait; Unknown if the line has none
	Status   int   // 0: unknown
	Bytes    int64 // of its body; Unknown if the line does not say it
	Cost     int64 // what it turned out to cost, such as its tokens; Unknown if the line does not say it

	// The gateway remembers these too. Times are in microseconds since the end of the wait.
	Milliseconds int64 // that a rule was charged for the duration; 0: what Duration says
	StatusAfter  int64 // when the status was known; 0: at the end; Unknown: the line does not say it
	SettledAfter int64 // when the cost was known; 0: at the end
}

// Met is the outcome of a request under one rule. It says how much of the limit earlier requests had used.
type Met struct {
	Allowed   bool  // by this rule
	Remaining int64 // as in limit.Outcome: after the charge, if the request was charged
	Wait      int64 // as in limit.Outcome; 0 in a refusal because of reservations
}

// Unknown is the Duration, Bytes or Cost of a Response whose line has none.
const Unknown = -1

// Names are the headers to read, in the spelling of http.CanonicalHeaderKey.
type Names struct {
	Headers []string

	byKey                    map[string]int // index in Headers, by key
	referer, agent, forwards int            // index in Headers; -1: not wanted
}

// NewNames returns the names for some headers.
func NewNames(headers []string) *Names {
	n := &Names{byKey: map[string]int{}}
	for _, h := range headers {
		if h = http.CanonicalHeaderKey(h); !slices.Contains(n.Headers, h) {
			n.byKey[strings.ToLower(strings.ReplaceAll(h, "-", "_"))] = len(n.Headers)
			n.Headers = append(n.Headers, h)
		}
	}
	n.referer = slices.Index(n.Headers, "Referer")
	n.agent = slices.Index(n.Headers, "User-Agent")
	n.forwards = slices.Index(n.Headers, "X-Forwarded-For")
	return n
}
