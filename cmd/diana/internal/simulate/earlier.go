// SPDX-License-Identifier: MIT

package simulate

import (
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Earlier finds what a replay of the entries alone does not know about the counters of the gateway. That is how
// much requests before the first entry had used, and by how much waiting requests proceeded late. Each entry says
// what it has met under its rules, so what the counters were. Earlier subtracts what the entries before it have used:
//
//	entry             1         2         3         4
//	remaining of 10   3         2         5         4      after its own charge
//	used              7         8         5         6
//	by the entries    1         2         3         4
//	by earlier ones   6         6         2         2      so 4 of 6 leave between 2 and 3
//
// A Comparison with an Earlier corrects its counters accordingly, before it evaluates an entry. The corrections are the
// same for every configuration that is tried, because they are about the gateway, as if that had applied the
// configuration at the first entry.
//
// Rejected: a replay that sets its counters to what each entry has met. It would agree with the gateway whatever
// errors it has, so its agreement would prove nothing.
type Earlier struct {
	waits    bool // only what waiting requests have changed is not known
	requests *requests
	match    plan.Match
	key      []byte
	counters map[counter]usage
	later    agenda // of responses to the entries
	found    map[int][]correction
	n        int // entries so far
}

// NewEarlier returns an Earlier without entries. whole says that no requests came before the first entry. Then the
// entries explain all counters. A difference shows that two requests were decided at nearly the same moment, and a
// correction would make it worse.
func NewEarlier(names *weblog.Names, whole bool) *Earlier {
	return &Earlier{waits: whole, requests: newRequests(names), counters: map[counter]usage{}, found: map[int][]correction{}}
}

// counter is the name of a counter: that of the counters of its rule, and the key of its actor.
type counter struct{ counters, key string }

// usage is what is known of the use of one counter of the gateway.
type usage interface {
	// meet returns what an entry shows that the entries so far do not explain.
	meet(m *meeting) correction

	// add adds what an entry has used, or takes back a part of it.
	add(at int64, of *plan.Rule, n int64)

	// finish returns what only all entries together show.
	finish() correction
}

// meeting is an entry under one of its rules.
type meeting struct {
	weblog.Met

	entry   int
	at      int64
	of      *plan.Rule
	cost    int64
	charged bool // by the rule; another rule can have refused the entry
}

// correction changes a counter before an entry is evaluated. It is none if its n is 0.
type correction struct {
	entry int
	counter
	at    int64
	n     int64 // is charged, into debt if need be, or refunded if it is negative
	moves bool  // n are microseconds, by which the one moment moves that is the state of a bucket
}

// Look looks at the next entry, which the gateway has decided by set.
func (p *Earlier) Look(set *plan.Set, e *weblog.Entry) {
	n := p.n
	p.n++
	r, ok := p.requests.request(e)
	if !ok || !honest(r.Path) {
		return
	}
	r.Actors, r.Costs = e.Actors, e.Costs
	if set.Find(&p.match, &r) != nil {
		return
	}
	rules, counters := p.evaluating(set, &r, e.Start)
	if len(rules) != len(e.Met) { // the gateway has read something of the request that the entry lacks
		return
	}
	for p.later.due(e.Start) {
		p.later.pop().do()
	}
	for i, of := range rules {
		u, known := p.counters[counters[i]]
		if !known {
			u = p.newUsage(of)
			p.counters[counters[i]] = u
		}
		if u == nil || e.Met[i].Remaining == limit.Unknown {
			continue
		}
		m := meeting{e.Met[i], n, e.Start, of, set.CostOf(of, &r), e.Allowed && e.Met[i].Allowed}
		p.keep(counters[i], u.meet(&m))
		if m.charged {
			u.add(m.at, of, m.cost)
			p.follow(e, u, &m)
		}
	}
}

// evaluating returns the rules that evaluate a request, and their counters.
func (p *Earlier) evaluating(set *plan.Set, r *diana.Request, at int64) (rules []*plan.Rule, counters []counter) {
	client := set.Client(r)
	client.At = at
	for _, of := range p.match.Rules {
		p.key = p.key[:0]
		if !of.CountsAll() {
			if p.key, of = of.AppendKey(p.key, &client); of == nil { // the rule excepts the client
				continue
			}
		}
		rules, counters = append(rules, of), append(counters, counter{of.Counters, string(p.key)})
	}
	return rules, counters
}

// newUsage returns what follows the use of a new counter; nil if nothing can.
func (p *Earlier) newUsage(of *plan.Rule) usage {
	_, queue := of.Meter.(limit.Queue)
	debtor, counts := of.Meter.(limit.Debtor)
	switch {
	case of.Limit.N == 0, p.waits && !queue:
		return nil
	case queue:
		return &scheduled{}
	case of.Algorithm.Uses("burst"):
		return &dripping{}
	case counts:
		return &counted{meter: debtor, once: of.Scope != rule.Local}
	}
	return nil
}

// keep keeps a correction of a counter.
func (p *Earlier) keep(of counter, c correction) {
	if c.counter = of; c.n != 0 {
		p.found[c.entry] = append(p.found[c.entry], c)
	}
}

// follow notes when the response to an entry changes what it has used.
func (p *Earlier) follow(e *weblog.Entry, u usage, m *meeting) {
	after, n := int64(0), int64(0)
	switch cost := costOf(&e.Response, m.of.Rule); {
	case len(m.of.Charge) > 0 && e.Status != 0 && !slices.Contains(m.of.Charge, e.Status):
		after, n = e.StatusAfter, -m.cost
	case m.of.Cost.Answer != "" && cost != weblog.Unknown:
		after, n = e.SettledAfter, cost-m.cost
	case m.of.Algorithm.Held:
		n = -m.cost
	default:
		return
	}
	if after == 0 {
		after = max(e.Duration, 0)
	}
	at, of := e.Start+e.Delayed+after, m.of
	p.later.add(at, func() { u.add(at, of, n) })
}

// Finish completes the corrections after the last entry.
func (p *Earlier) Finish() {
	for of, u := range p.counters {
		if u != nil {
			p.keep(of, u.finish())
		}
	}
	p.counters, p.later = nil, nil
}
