// SPDX-License-Identifier: MIT

package diana

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/established"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Handler returns a handler that evaluates each request and calls next if the request is allowed.
// A refused request gets the configured refusal, or what Options.Refuse writes, or what its entry
// diverts it to. Handler belongs in front of all other filters, except those that call WithActor or
// WithCost: then a refused request costs nothing but the refusal. Slots under rules of concurrency
// are released when next returns or panics.
//
// A request that has to wait for its scheduled time waits in Handler, until its context ends.
// net/http notices that a client has disconnected only after the request's body has been read. So
// Handler reads a body of up to 64 KiB before the request waits. A client keeps its place after it
// disconnects if its body is larger and unread, has no known length, or is sent only on demand
// (Expect).
//
// Under rules that count only certain statuses, a request is charged first, and refunded as soon as
// its status is known to be another. It stays charged if next panics before that, or if the client
// has disconnected by then. A connection that next takes over (Hijack) counts as 101.
//
// The status is known when next writes it through the ResponseWriter that Handler passes to it. A
// request stays charged if next returns without writing. Some frameworks, such as echo, write the
// response to an error through another ResponseWriter, after next has returned. A handler that
// succeeds without a body must call WriteHeader.
//
// If an entry has a bandwidth, writes of next block to keep it, until the request's context ends. A
// connection after Hijack has no bandwidth. As in net/http, small writes are buffered until next
// calls Flush or returns. A WriteTimeout of the server must be long enough.
//
// A client that sends its body slowly, or reads the response slowly, holds its slots for as long as
// the http.Server allows. By default a server allows it forever: set ReadHeaderTimeout, ReadTimeout
// and WriteTimeout. If a body that Handler reads does not arrive in time, the client gets 408: a
// body that rules read must arrive within a minute.
//
// If a rule counts or reserves by the body of a request, Handler reads a JSON body of up to 1 MiB before it
// calls next. Then next reads the same bytes. A larger body gets 413. A body that is not JSON, is
// compressed, or has a key twice that a rule reads gets 400. Handler holds up to 64 MiB of bodies at once, until next
// has read them or returned; without room a request gets 503. Local rules that do not need the body are
// evaluated before it is read, so a request that they refuse costs no memory.
//
// A request with a path that no honest client sends gets 400, and one with a path of more than
// 8 KiB gets 414. No rule counts these requests. rule.Paths has the setting under which such paths are
// evaluated.
func (l *Limiter) Handler(next http.Handler) http.Handler { return &handler{l, next} }

// Serve answers one request as Handler does. It is for filters of a framework that learns of the route
// and of the next handler with each request.
//
// q says what the program knows of the request. An empty Method or Path is taken from r, and HTTP is
// always r. A Path of q, such as the pattern of a route, is what rules see; next and a diversion see the
// URL of r. refuse answers a refused request in place of Options.Refuse, under the same terms. It may be
// nil.
func (l *Limiter) Serve(w http.ResponseWriter, r *http.Request, q Request, next http.Handler, refuse func(http.ResponseWriter, *http.Request, *Decision)) {
	l.serve(w, r, &q, next, refuse)
}

// Take evaluates a request and charges it, under all rules that cover it or, if one refuses, under
// none. Under a leaky bucket, or a rule with a wait, it blocks until the request's scheduled time.
// For global rules it waits for Redis, for redis.timeout at most, and decides without Redis if that
// is down. It never reads the body of Request.HTTP.
//
// The error is ctx's, if ctx ended while the request waited, a rule.PathError or a rule.CredentialError. Then the request is
// charged nowhere, and the Decision is a refusal that has ended; Done need not be called. Otherwise the
// Decision must be ended with Done.
//
// Under local rules Take does not allocate. There are three exceptions. The request waits. Its path
// is spelled strangely. The value of a cookie, query parameter or host is not in its canonical form.
func (l *Limiter) Take(ctx context.Context, r Request) (d Decision, err error) {
	err = l.takeInto(ctx, &d, &r, nil)
	return d, err
}

// takeInto is Take of a request whose rules p finds, or nobody before if p is nil. d is zero at first.
func (l *Limiter) takeInto(ctx context.Context, d *Decision, r *Request, p *plan.Prepared) error {
	e, err := l.take(ctx, r, p, nil, nil)
	if d.set(e); err != nil {
		d.Done()
		*d = Decision{}
		return err
	}
	if l.options.OnDecision != nil {
		observe(l.options.OnDecision, d)
	}
	return nil
}

// take is Take without a Decision and Options.OnDecision. The Evaluation must be ended after an error
// too. take finds the rules by p, calls beforeWait before the request waits, and read if rules need its body. All
// three may be nil.
func (l *Limiter) take(ctx context.Context, r *Request, p *plan.Prepared, beforeWait func(*http.Request) error, read decide.BodyReader) (*decide.Evaluation, error) {
	complete(r)
	e, err := l.decider.Take(ctx, r, p, beforeWait, read)
	if err != nil {
		err = l.rejected.Count(err)
	}
	return e, err
}

// Peek evaluates a request as Take would now, and changes nothing: no counter, no count of decisions.
// Each Remaining is that before the request, where Take reports that after it.
// It does not wait: Delayed is how long the request would wait for a leaky bucket. It does not regard
// other requests that wait. The Decision need not be ended with Done. The error is ctx's, or a
// rule.PathError.
func (l *Limiter) Peek(ctx context.Context, r Request) (d Decision, err error) {
	complete(&r)
	e, err := l.decider.Peek(ctx, &r)
	d.set(e)
	verdicts := slices.Clone(d.Verdicts) // because the evaluation ends here
	if d.Done(); err != nil {
		return Decision{}, err
	}
	d.handle, d.Verdicts = decide.Handle{}, verdicts
	return d, nil
}

// Identify returns the actors of a request by the identity of the configuration in force: account,
// device and address of the client. An actor that the request does not name is "". The zero value of
// the address means that it is unknown.
func (l *Limiter) Identify(r Request) (account, device string, ip netip.Addr) {
	complete(&r)
	return l.decider.Limits().Set.Identify(&r)
}

// Waiting returns how many requests wait now, in Take: under a rule with a wait, or for a leaky
// bucket. There are at most 10,000.
func (l *Limiter) Waiting() int { return l.decider.Waiting() }

// Reset forgets what the rule with that name, and its overrides, have counted for one actor: the
// actor may use the whole limit again. The actor is given as a value ("ann"), as a value for each of the
// rule's actors ("account=ann", "ip=192.0.2.1"), or as Explain, the log and Status write its key. A
// global rule is reset in Redis, and within a second in the memory of every gateway; a local rule
// is reset in this process alone. Slots that requests hold stay held. The error says which rule or
// actor was expected, or why a store could not be asked; then Reset can be repeated.
func (l *Limiter) Reset(ctx context.Context, rule string, actor ...string) error {
	set := l.decider.Limits().Set
	r, err := set.Named(rule)
	if err != nil {
		return err
	}
	keys, err := plan.ActorKeys(set, r, actor)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := l.decider.Reset(ctx, r, []byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// Explain returns the rules that would evaluate the request, in order, and the keys of its actors.
// It consumes nothing. The error is a rule.PathError.
func (l *Limiter) Explain(r Request) ([]Explanation, error) {
	complete(&r)
	list, err := plan.ExplainAt(l.decider.Limits().Set, &r, l.local.Now())
	return explanations(list), err
}

func explanations(list []plan.Explanation) []Explanation {
	explained := make([]Explanation, len(list))
	for i, e := range list {
		explained[i] = Explanation{e.Rule.Declared(), e.Rule.URL, e.Key, e.Cost, e.Excepted, e.By, e.Class, 0, e.Until}
	}
	return explained
}

// PeekActor returns how the rule with that name would evaluate one actor now, and changes nothing. The actor is
// given as for Reset. There is an Explanation and a Verdict for each key that the actor can have: an account has
// one for each source. Each Remaining is that before the request, for a cost of 1. It is limit.Unknown for an actor
// that the rule excepts, and for one whose store has not answered: then the error says why, and the Verdict allows
// the request. Other errors come without Verdicts, and say which rule or actor was expected. It asks Redis once for
// each key of a global rule.
func (l *Limiter) PeekActor(ctx context.Context, rule string, actor ...string) ([]Explanation, []Verdict, error) {
	limits := l.decider.Limits()
	r, err := limits.Set.Named(rule)
	if err != nil {
		return nil, nil, err
	}
	list, err := plan.ExplainActor(limits.Set, r, actor, l.local.Now())
	if err != nil {
		return nil, nil, err
	}
	explained, verdicts := explanations(list), make([]Verdict, len(list))
	for i, e := range list {
		if e.Rule.Cost.Answer != "" {
			explained[i].Reserved = l.decider.ReservedBy(e.Rule, []byte(e.Key))
		}
		verdicts[i] = Verdict{Rule: e.Rule.Declared(), Outcome: limit.Outcome{Allowed: true, Remaining: limit.Unknown}}
		if e.Excepted {
			continue
		}
		o, failed := l.decider.PeekKey(ctx, limits, e.Rule, []byte(e.Key))
		if failed != nil {
			err = failed
			continue
		}
		verdicts[i].Outcome = o
	}
	return explained, verdicts, err
}

// Rejected returns how many requests were rejected before any rule counted them, by reason: "path" for a
// path that no honest client sends, "path_length" for one that is too long. If the configuration has credentials,
// there is "token" for those that are missing or not valid. If rules read bodies, there are
// also "body" for one that is not JSON or has a key twice, and "body_length" for one of more than 1 MiB. The
// others are "body_incomplete" and "body_timeout" for one that did not arrive as a whole or in time, and
// "body_memory" while there is no room for bodies.
func (l *Limiter) Rejected() map[string]int64 {
	return l.rejected.ByReason(l.decider.Limits().Set.ReadsBodies, l.decider.Limits().Credentials != nil)
}

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
	e := established.In(r.Context())
	e.Actors = with(e.Actors, kind, value)
	return r.WithContext(e.Within(r.Context()))
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
	e := established.In(r.Context())
	e.Costs = with(e.Costs, header, n)
	r = r.WithContext(e.Within(r.Context()))
	if strings.HasPrefix(header, "body:") {
		return r
	}
	r.Header = r.Header.Clone()
	r.Header.Set(header, strconv.FormatInt(n, 10))
	return r
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
	var e established.Facts
	switch {
	case r.HTTP != nil:
		e = established.In(r.HTTP.Context())
	case r.Native != nil:
		e = established.In(r.Native.Context())
	default:
		return
	}
	if r.Costs == nil {
		r.Costs = e.Costs
	}
	if r.Proofs == nil {
		r.Proofs = e.Proofs
	}
	switch {
	case e.Actors == nil:
	case r.Actors == nil:
		r.Actors = e.Actors
	default:
		actors := maps.Clone(e.Actors)
		for kind, value := range r.Actors {
			if value != "" { // an empty one counts as absent
				actors[kind] = value
			}
		}
		r.Actors = actors
	}
}

// Prepared is a method and a path of a Limiter whose rules are found once for each configuration, and not for each
// request. It is for what a program does under few names: functions, jobs, methods of an RPC, queues. It is safe for
// concurrent use, and needs no end.
type Prepared struct {
	limiter *Limiter
	rules   plan.Prepared
}

// Prepare returns a Prepared for a method and a path, which are as in Request. The Limiter does not keep it. A program
// that takes methods or paths from its clients must not keep one for each of them, because they are without end.
func (l *Limiter) Prepare(method, path string) *Prepared {
	return &Prepared{l, plan.Prepared{Method: method, Path: path}}
}

// Take evaluates a request as [Limiter.Take] does. An empty Method or Path of r means that of p. A request that has
// another one, or several, is evaluated by the rules of its own.
func (p *Prepared) Take(ctx context.Context, r Request) (d Decision, err error) {
	r.Method, r.Path = cmp.Or(r.Method, p.rules.Method), cmp.Or(r.Path, p.rules.Path)
	err = p.limiter.takeInto(ctx, &d, &r, &p.rules)
	return d, err
}
