// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/tls"
	"time"
)

// Options configure a Store.
type Options struct {
	URL       string   // redis:// or rediss://, one server, or unix:// and the path of its socket; or
	Addresses []string // host:port: of Sentinels, with Master, or of nodes of a Cluster
	Master    string   // the name of the master that the Sentinels watch; empty: Addresses are a Cluster's

	// Credentials is called for each new connection. If it is nil, the URL has the credentials,
	// if any. SentinelCredentials are those of the Sentinels; nil means none.
	Credentials         func() (username, password string, err error)
	SentinelCredentials func() (username, password string, err error)

	TLS *tls.Config // nil: none, unless the URL begins with rediss

	Timeout time.Duration // the longest time that a request waits for Redis; 0 means 50 ms
	Prefix  string        // the beginning of every key; empty means "diana"

	// Tags is into how many parts the counters in a Cluster are divided, by actor. It must be the same in all
	// gateways. 0 means 32; without a Cluster it has no effect.
	Tags int

	// Gateway is the number of this gateway. Stores that replace each other in one gateway have
	// the same number, so that the gateway counts once. It is at most 1<<53; 0 means a random number.
	Gateway int64

	// Guest keeps this Store out of the number of gateways. It is for a program that looks or resets, and takes no
	// requests, so that the shares of the gateways do not become smaller.
	Guest bool

	// Gateways is the number of gateways that an earlier Store saw last, including this one.
	// Health reports it until Redis has answered. 0 means that there was no earlier Store.
	Gateways int

	// Remember is how many bytes the states may take that the Store puts back after Redis has lost its memory: of
	// each counter the newest that it has got. 0 means 16 MiB; below 0: none.
	Remember int64

	// Lost is called by Close for each name of Counters whose debits Redis has not received all: with the number of
	// their actors, and their sum. May be nil.
	Lost func(counters string, actors int, sum int64)

	// Reconciled is called after an outage. debited is the sum of debits that were made without Redis and
	// that it has received now. unknown is how many calls have a fate that nobody can learn any more: the
	// Store never repeats them. Any goroutine calls it. May be nil.
	Reconciled func(debited int64, unknown int)

	// Changed is called when Redis becomes reachable or unreachable, when it has forgotten, and
	// when the number of gateways or OtherTags changes. It learns that Redis is reachable once requests use
	// it, and of the other two before. One goroutine calls it. May be nil.
	Changed func(Health)

	// Reset is called when an actor's counter was reset, by this Store or by another gateway,
	// so that the caller can forget what it keeps of the actor. It is called once for each
	// reset, and within a second while Redis is reachable. Any goroutine calls it. May be nil.
	Reset func(counters string, key []byte)

	// Minutes calls f for each minute of the last day with what this gateway has decided in it. Stores that
	// replace each other in one gateway have the same Minutes. The Store calls it at each heartbeat, and
	// once more in Close, and sends Redis what is new; see Store.EachMinute. now is by Redis' clock, if
	// that is known. Any goroutine calls it. May be nil: then this gateway reports nothing.
	Minutes func(now time.Time, f func(at time.Time, allowed, refused, shadowRefused, delayed int64))

	// Observed is called after each call to Redis with its duration. Any goroutine calls it. May
	// be nil.
	Observed func(time.Duration)

	// CallerClock makes Redis use the moment that Take gets, and not its own clock. It is for
	// tests that make one request at a time, such as Suite.Agree of package storetest.
	CallerClock bool
}

// Health is the state of the connection to Redis.
type Health struct {
	Up       bool
	Reason   error // why it is not up
	Gateways int   // the number that was last seen, including this one; at least 1

	// OtherTags is the number of tags of another gateway, if it differs from Options.Tags. Then the gateways do not
	// count together. 0: all have the same, as far as is known.
	OtherTags int

	// Forgot reports whether Redis has lost what this Store had counted: it has restarted
	// empty, or from an old copy.
	Forgot bool
}
