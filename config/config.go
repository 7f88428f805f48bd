// SPDX-License-Identifier: MIT

// Package config reads configurations. It turns YAML text into a [Config], or into [Errors] that
// name every mistake with its place.
//
// Reading is strict: unknown or repeated keys, values of the wrong type or out of range, and missing
// values are errors. Parse reports all errors together. A limiter accepts every configuration that
// Parse returns.
package config

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// Config is a configuration. Parse fills in the defaults. A program can also build a Config itself:
// zero values mean the defaults, see [Config.Filled].
type Config struct {
	Source  string // name of the file or source
	Version string // twelve hexadecimal digits, equal for equal texts

	Redis       *Redis  // nil means none
	Remote      *Remote // nil means none
	Identity    rule.Identity
	Credentials Credentials
	Paths       rule.Paths
	Response    Response
	MaxKeys     int // actors that the local store remembers for all rules together; 1 to 100,000,000, default 1,000,000
	Limits      []rule.Entry

	// Warnings name parts that are valid but probably not what the author meant.
	Warnings Errors

	withoutRedis Errors // warnings that apply only without Redis, see WithRemote
	settings     bool   // see HasSettings

	ends map[[2]int]Error // see EndPlace; by entry and rule
}

// HasSettings reports whether the parsed text has settings besides limits. A remote configuration
// cannot have settings.
func (c *Config) HasSettings() bool { return c.settings }

// EndPlace returns the place of a rule that needs to learn how a request ends: of its key algo if the rule
// counts slots, or else of charge. Message is empty. ok is false for other rules, and for a Config that a
// program has built. The arguments are indexes in Limits and in Rules.
func (c *Config) EndPlace(entry, rule int) (place Error, ok bool) {
	place, ok = c.ends[[2]int{entry, rule}]
	return place, ok
}

// Redis says how to reach Redis. Exactly one of URL, Cluster and Sentinel is set.
type Redis struct {
	URL      string   // redis:// or rediss://, with a host, and perhaps a user, a password and a database
	Cluster  []string // host:port
	Sentinel *Sentinel

	Username string // of the ACL; if empty, Redis' default user or the one in URL
	Password Secret // of Username; empty if URL has one
	TLS      *TLS   // for all servers and Sentinels; nil means none, unless URL begins with rediss

	Timeout time.Duration // longest wait of a request for Redis; 1ms to 10s, default 50ms
	Prefix  string        // of every key; printable ASCII without spaces and braces, default "diana"

	// Remember is how many bytes the states of counters may take that a gateway puts back after Redis has lost
	// them; at most 1 GiB, default 16 MiB. Below 0: none.
	Remember int64

	// Tags is into how many parts the counters in a Cluster are divided; 1 to 1,024, default 32. It must be the same
	// in all gateways.
	Tags int
}

// Sentinel says how to find the master of a Redis that Sentinels watch.
type Sentinel struct {
	Master    string
	Addresses []string // host:port, at least one
	Username  string   // of the Sentinels themselves; if empty, their default user
	Password  Secret
}

// Response says what clients see.
type Response struct {
	Status      int  // of a refusal; 400 to 599, default 503
	OmitHeaders bool // leave out the RateLimit fields; a configuration says headers: false
}

// Filled returns a copy of c in which each zero value that has a default has that default. These are
// MaxKeys, Response.Status, the sources of Identity, Redis.Timeout, Redis.Prefix, Redis.Remember, Redis.Tags and the status of a
// Divert. The default Algorithm of a rule is the first of v. An empty list of sources that is not nil
// stays empty. The results of v.Parse are filled already. The copy shares with c what needs no default.
func (c *Config) Filled(v Vocabulary) *Config {
	f := *c
	f.fill(v)
	return &f
}

// Check returns an error that names the values of c that are out of range. It is for configurations
// that a program has built, after [Config.Filled]; those of Parse have no such values. It does not
// check what needs the vocabulary, such as actors and limits: a limiter does.
func (c *Config) Check() error {
	errs := []error{
		inRange("max_keys", int64(c.MaxKeys), maxKeysForm),
		inRange("response.status", int64(c.Response.Status), statusForm),
		checkRedis(c.Redis),
		c.Credentials.check(),
		c.checkProvedCosts(),
	}
	for i := range c.Limits {
		if err := checkEntry(&c.Limits[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// fill puts defaults into c. It copies what c points to before a change, and nothing else, because a
// configuration can have 100,000 entries.
func (c *Config) fill(v Vocabulary) {
	c.MaxKeys = cmp.Or(c.MaxKeys, int(maxKeysForm.otherwise))
	if k := c.Credentials.Keys; k != nil && len(k.Headers) == 0 {
		keys := *k
		keys.Headers = keyHeadersForm.otherwise
		c.Credentials.Keys = &keys
	}
	for i, issuer := range c.Credentials.JWT {
		if issuer.Stale == 0 || len(issuer.Algorithms) == 0 {
			filled := slices.Clone(c.Credentials.JWT)
			filled[i].Stale = cmp.Or(issuer.Stale, staleForm.otherwise)
			if len(issuer.Algorithms) == 0 {
				filled[i].Algorithms = algorithmsForm.otherwise
			}
			c.Credentials.JWT = filled
		}
	}
	c.Response.Status = cmp.Or(c.Response.Status, int(statusForm.otherwise))
	if c.Identity.Account == nil {
		c.Identity.Account = knownSources(v, accountForm)
	}
	if c.Identity.Device == nil {
		c.Identity.Device = knownSources(v, deviceForm)
	}
	if c.Redis != nil {
		redis := *c.Redis
		redis.Timeout = cmp.Or(redis.Timeout, timeoutForm.otherwise)
		redis.Prefix = cmp.Or(redis.Prefix, prefixForm.otherwise)
		redis.Remember = cmp.Or(redis.Remember, rememberForm.otherwise)
		redis.Tags = cmp.Or(redis.Tags, int(tagsForm.otherwise))
		c.Redis = &redis
	}
	if first := slices.IndexFunc(c.Limits, lacksDefault); first >= 0 {
		c.Limits = slices.Clone(c.Limits)
		for i := first; i < len(c.Limits); i++ {
			if lacksDefault(c.Limits[i]) {
				fillEntry(v, &c.Limits[i])
			}
		}
	}
}

// lacksDefault reports whether fillEntry changes an entry.
func lacksDefault(e rule.Entry) bool {
	for i := range e.Rules {
		if e.Rules[i].Algorithm.New == nil {
			return true
		}
	}
	return answers(e.Divert) && e.Divert.Status == 0
}

// fillEntry puts defaults into an entry, whose slices and pointers it copies first.
func fillEntry(v Vocabulary, e *rule.Entry) {
	e.Rules = slices.Clone(e.Rules)
	for i := range e.Rules {
		if a := &e.Rules[i].Algorithm; a.New == nil && len(v.Algorithms) > 0 {
			*a = v.Algorithms[0]
		}
	}
	if d := e.Divert; answers(d) && d.Status == 0 {
		filled := *d
		filled.Status = int(divertStatus.otherwise)
		e.Divert = &filled
	}
}

// knownSources returns the default of a list of sources, without those that the vocabulary does not have.
func knownSources(v Vocabulary, f listForm) []rule.Actor {
	known := []rule.Actor{}
	for _, text := range f.otherwise {
		if a, err := v.ParseActor(text); err == nil {
			known = append(known, a)
		}
	}
	return known
}
