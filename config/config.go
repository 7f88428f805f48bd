// SPDX-License-Identifier: MIT

// Package config reads configurations: YAML text to a [Config], or to [Errors] that
// name every mistake with its place.
//
// Reading is strict. A key that is not known or given twice, a value of the wrong
// type or out of range, a missing value: all are errors, and all of them come out
// together. What is read without an error, package rule compiles without one.
package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// MaxSize is the largest configuration that is read, in bytes: some 10,000 rules. It
// keeps the time and memory small that the worst text can cost.
const MaxSize = 1 << 20

// Config is a configuration as it was written, with the defaults filled in.
type Config struct {
	Source  string // the name it was read under
	Version string // of the text: equal for equal texts, twelve hexadecimal digits

	Redis    *Redis  // nil: none given
	Remote   *Remote // nil: none given
	Identity rule.Identity
	Paths    rule.Paths
	Response Response
	MaxKeys  int // actors that the local store remembers, all rules together; 1 to 100,000,000, default 1,000,000
	Limits   []rule.Entry

	// Warnings are about what is valid and yet may not be what was meant.
	Warnings Errors

	withoutRedis Errors // more warnings, for where there is no Redis; see Compose
	settings     bool   // see HasSettings
}

// HasSettings reports whether a text that was read says more than limits, so that no centre
// can hold it.
func (c *Config) HasSettings() bool { return c.settings }

// Redis says how to reach Redis. One of URL, Cluster and Sentinel is set.
type Redis struct {
	URL      string   // redis:// or rediss://, with a host, and perhaps a user, a password and a database
	Cluster  []string // host:port
	Sentinel *Sentinel

	Username string // of the ACL; empty: Redis' default user, or the one in URL
	Password Secret // of Username; none if URL has one
	TLS      *TLS   // of all servers and Sentinels; nil: none, unless URL begins with rediss

	Timeout time.Duration // most that a request ever waits for Redis; 1ms to 10s, default 50ms
	Prefix  string        // of every key; printable ASCII without spaces and braces, default "diana"
}

// Sentinel says how to find the master of a Redis that Sentinel watches.
type Sentinel struct {
	Master    string
	Addresses []string // host:port, at least one
	Username  string   // of the Sentinels themselves; empty: their default user
	Password  Secret
}

// Response says what a client sees.
type Response struct {
	Status      int  // of a refusal; 400 to 599, default 503
	OmitHeaders bool // leave out the RateLimit fields; a configuration says headers: false
}

// Filled returns a copy of c in which each zero value that has a default has that default: MaxKeys,
// Response.Status, the sources of Identity, Redis.Timeout, Redis.Prefix, the status of a Divert, and
// the Algorithm of a rule, which becomes the first of v. An empty list of sources that is not nil
// stays empty. The results of v.Parse are filled already.
func (c *Config) Filled(v Vocabulary) *Config {
	f := *c
	f.MaxKeys = cmp.Or(f.MaxKeys, int(maxKeysForm.otherwise))
	f.Response.Status = cmp.Or(f.Response.Status, int(statusForm.otherwise))
	if f.Identity.Account == nil {
		f.Identity.Account = v.known(accountForm)
	}
	if f.Identity.Device == nil {
		f.Identity.Device = v.known(deviceForm)
	}
	if c.Redis != nil {
		redis := *c.Redis
		redis.Timeout = cmp.Or(redis.Timeout, timeoutForm.otherwise)
		redis.Prefix = cmp.Or(redis.Prefix, prefixForm.otherwise)
		f.Redis = &redis
	}
	f.Limits = slices.Clone(c.Limits)
	for i := range f.Limits {
		v.fill(&f.Limits[i])
	}
	return &f
}

// fill puts defaults into an entry, whose slices and pointers it copies first.
func (v Vocabulary) fill(e *rule.Entry) {
	e.Rules = slices.Clone(e.Rules)
	for i := range e.Rules {
		if a := &e.Rules[i].Algorithm; a.New == nil && len(v.Algorithms) > 0 {
			*a = v.Algorithms[0]
		}
	}
	if d := e.Divert; d != nil && d.Status == 0 && d.Upstream == nil {
		filled := *d
		filled.Status = int(divertStatus.otherwise)
		e.Divert = &filled
	}
}

// known returns the default of a list of sources, without those that the vocabulary does not have.
func (v Vocabulary) known(f listForm) []rule.Actor {
	known := []rule.Actor{}
	for _, text := range f.otherwise {
		if a, err := v.ParseActor(text); err == nil {
			known = append(known, a)
		}
	}
	return known
}
