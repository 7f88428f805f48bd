// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about a Limiter, beside its configuration. The zero value is
// ready to use.
type Options struct {
	// Vocabulary is the set of words that configurations can use. The zero value means
	// config.DefaultVocabulary.
	Vocabulary config.Vocabulary

	// RedisObserved is called after each call to Redis with its duration, by the goroutine that made
	// the call. May be nil.
	RedisObserved func(time.Duration)

	// Guest keeps this Limiter out of the number of gateways, by which shares are divided while Redis is down. It is for a
	// program that only calls methods such as Peek and Reset.
	Guest bool

	// Now replaces the system's clock, for tests and for playing back logs. Nil means time.Now. With
	// a clock of the program no request waits: Decision.Delayed says how long it would wait, and the
	// wait of a rule and bandwidths have no effect. Redis uses its own clock. The years must be 1970
	// to 2155.
	Now func() time.Time

	// Stores are stores of the program by scope. Rules with that scope are counted there. A name
	// of the program's own becomes a scope that configurations may use; "local" and "global" replace
	// the store in this process and Redis. Every store must pass package storetest.
	//
	// If Take or Peek of a store returns an error, on_error of the rule decides, as it does while Redis
	// is down. The store then gets a debit for each request that was allowed. If Wait returns an error,
	// the request is refused. A Limiter asks the store again with the next request, so a store should
	// fail fast. There are at most 62 stores. The program closes them, after the Limiter.
	Stores map[string]limit.Store

	// Refuse answers a refused request in place of the configured problem. The RateLimit fields,
	// Retry-After and Cache-Control are already set; Refuse can change them, and must write a
	// status. It is called for each request that Handler does not allow. A request whose context ended
	// while it waited is one of these; it may have no Verdicts, and its RetryAfter is 0. Refuse is not
	// called for a request that its entry diverts, or that is rejected because of its path or its body. It
	// runs on the request's goroutine and must not keep the Decision. If it panics, the request
	// releases what it holds. Nil means the configured problem.
	Refuse func(w http.ResponseWriter, r *http.Request, d *Decision)

	// OnDecision is called with each decision of Handler and Take, allowed or refused, after the
	// request has waited, and before Handler writes the response or Take returns. It runs on the
	// request's goroutine, concurrently for different requests. It must return soon, must not call
	// Done or SetStatus, and must not keep the Decision. It is not called when Take returns an error, or
	// for the same reasons in Handler: the path is rejected, or the context ended while the request
	// waited. If it panics, the request releases what it holds. Nil costs nothing.
	OnDecision func(d *Decision)

	// OnDone is called with each decision of Handler when the request has ended: when its slots are
	// released, and before Handler returns. For the rest the terms of OnDecision apply. With OnDone the
	// Limiter changes local counters one after the other, each at a moment of its own, so that a program
	// can play the decisions back exactly: see [Decision.Moments]. Nil costs nothing.
	OnDone func(d *Decision)

	// InOrder reports whether a program with OnDone needs moments in the order of the decisions now. While
	// it returns false, parallel requests do not wait for each other, and their moments may be equal or in
	// another order. It is called for each change of local counters, concurrently, and must return at
	// once. Nil means always.
	InOrder func() bool

	// Accept returns an error for a configuration that the program cannot keep, such as one with a word
	// that means nothing there. The configuration is then rejected, as one with a mistake is. One
	// goroutine at a time calls it. Nil means that every configuration is accepted.
	Accept func(*config.Config) error

	// OnChange is called when a configuration has become active in place of another one, and replaces the
	// line in the log about that. It must not change them. One goroutine at a time calls it, and it must not
	// call Update or Reload. Nil means a line with the differences, which takes a comparison of all entries.
	OnChange func(before, after *config.Config)

	// MeasureBegin says that rules of adaptive concurrency without measure learn from the time until a response
	// begins. It is for programs that pass on responses of servers. Otherwise they learn from the time until it ends.
	MeasureBegin bool

	// Upstream returns the handler that forwards requests to a server to which an entry diverts
	// them. Nil means an httputil.ReverseProxy that sets X-Forwarded-For, -Host and -Proto.
	Upstream func(*url.URL) http.Handler

	// Decoders decode responses from which Handler reads what they cost, see rule.Cost, by the name of their
	// content coding in lower case, such as "br". Handler decodes beside the response: the client gets
	// it as it was. A Decoder returns what it has decoded of r as soon as it can, and holds no other
	// resources. It is called on the request's goroutine. Handler itself decodes gzip.
	Decoders map[string]func(r io.Reader) (io.Reader, error)

	// OnRefusal is called with the refusals that are worth a line in a log, at most 10 times a
	// second: see Refusal. The goroutine of the request or another one calls it, several at once,
	// and it must return soon. Nil means that refusals are only counted.
	OnRefusal func(Refusal)

	// Logger gets one line for each change of state. Nil means slog.Default().
	Logger *slog.Logger
}

// filled returns the options with their defaults.
func (o Options) filled() (Options, error) {
	if len(o.Vocabulary.Algorithms) == 0 {
		o.Vocabulary = config.DefaultVocabulary()
	}
	if o.Upstream == nil {
		o.Upstream = respond.ReverseProxy
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if len(o.Stores) > decide.MaxStores {
		return o, fmt.Errorf("diana: Options.Stores has %d stores, expected at most %d", len(o.Stores), decide.MaxStores)
	}
	o.Vocabulary.Scopes = slices.Clone(o.Vocabulary.Scopes)
	for _, scope := range slices.Sorted(maps.Keys(o.Stores)) {
		if o.Stores[scope] == nil {
			return o, fmt.Errorf("diana: Options.Stores has no store for the scope %q", scope)
		}
		if !slices.Contains(o.Vocabulary.Scopes, scope) {
			o.Vocabulary.Scopes = append(o.Vocabulary.Scopes, scope)
		}
	}
	return o, nil
}

// checkScopes returns an error if a rule has a scope without a store.
func (o Options) checkScopes(entries []rule.Entry) error {
	var errs []error
	for _, e := range entries {
		for _, r := range e.Rules {
			if s := r.Scope; s != "" && s != rule.Local && s != rule.Global && o.Stores[string(s)] == nil {
				errs = append(errs, fmt.Errorf("url %q: rule %q: scope %q has no store, expected local, global or a scope of Options.Stores", e.URL, r.Name, s))
			}
		}
	}
	return errors.Join(errs...)
}

// now returns the time by Options.Now. Requests are evaluated by the clock of the store.
func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}
