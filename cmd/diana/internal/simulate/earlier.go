// SPDX-License-Identifier: MIT

package simulate

import (
	"container/heap"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Earlier finds what a replay of the entries alone does not know about the counters of the gateway. That is how
// much requests before the first entry had used, and by how much waiting requests proceeded late. It needs the
// outcomes that the entries have met. Each outcome says what was used, and Earlier subtracts what the entries
// themselves have used.
//
// A Comparison with an Earlier corrects its counters accordingly, before it evaluates an entry. Corrections are the
// same whatever the configuration, as if the gateway had applied it at the first entry.
type Earlier struct {
	waits    bool // only corrects what waiting requests have changed
	requests *requests
	match    plan.Match
	rules    []*plan.Rule // of the current entry
	names    [][]byte     // of its counters: that of the rule and the key, with a 0 in between
	key      []byte
	counters map[string]*counter
	changes  changes
	found    map[int][]correction // by the number of the entry that they precede
	n        int                  // entries so far
}

// NewEarlier returns an Earlier without entries. whole says that no requests came before the first entry.
func NewEarlier(names *weblog.Names, whole bool) *Earlier {
	return &Earlier{waits: whole, requests: newRequests(names), counters: map[string]*counter{}, found: map[int][]correction{}}
}

// counter is what is known of one counter of the gateway.
type counter struct {
	counters string // name of the counters
	key      string
	usage    usage
}

// usage is what is known of the use of a counter, by a kind of algorithm.
type usage interface {
	// meets returns what an outcome says about earlier requests. It is that of a request of that cost. more is
	// false if no later outcome says more.
	meets(n int, at int64, r *plan.Rule, cost int64, charged bool, met weblog.Met) (found []correction, more bool)

	// add adds what entries have used.
	add(at int64, r *plan.Rule, cost int64)

	// finish returns the corrections for which all entries had to be seen.
	finish() []correction
}

// correction is a change of a counter before an entry is evaluated.
type correction struct {
	entry    int
	counters string // name of the counters
	key      string
	kind     kind
	at       int64 // moment
	n        int64
}

// kind is a kind of correction.
type kind int

const (
	charge kind = iota // n, into debt if need be; or a refund, if it is negative
	fill               // a bucket is full, or free, from the moment at on
	delay              // the scheduled times of a leaky bucket, by n microseconds
)

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
	if p.findRules(set, &r, e.Start); len(p.rules) != len(e.Met) {
		return
	}
	for len(p.changes) > 0 && p.changes[0].at <= e.Start {
		c := heap.Pop(&p.changes).(change)
		c.usage.add(c.at, c.rule, c.n)
	}
	for i, of := range p.rules {
		c := p.counter(of, p.names[i])
		if c == nil || e.Met[i].Remaining == limit.Unknown {
			continue
		}
		met, cost := e.Met[i], set.CostOf(of, &r)
		charged := e.Allowed && met.Allowed
		found, more := c.usage.meets(n, e.Start, of, cost, charged, met)
		if p.keep(c, found); !more {
			p.keep(c, c.usage.finish())
			p.counters[string(p.names[i])] = nil
			continue
		}
		if charged {
			c.usage.add(e.Start, of, cost)
			p.follow(e, c, of, cost)
		}
	}
}

// findRules finds the rules that have evaluated a request, and the names of its counters.
func (p *Earlier) findRules(set *plan.Set, r *diana.Request, at int64) {
	client := set.Client(r)
	client.At = at
	p.rules = p.rules[:0]
	for _, of := range p.match.Rules {
		n := len(p.rules)
		if n == len(p.names) {
			p.names = append(p.names, nil)
		}
		var key []byte
		if !of.CountsAll() {
			if key, of = of.AppendKey(p.key[:0], &client); of == nil {
				continue
			}
			p.key = key
		}
		p.rules = append(p.rules, of)
		p.names[n] = append(append(append(p.names[n][:0], of.Counters...), 0), key...)
	}
}

// counter returns the counter of that name; nil if it is not followed, or not any longer.
func (p *Earlier) counter(of *plan.Rule, name []byte) *counter {
	c, known := p.counters[string(name)]
	if known {
		return c
	}
	if u := p.usageOf(of); u != nil {
		c = &counter{of.Counters, string(name[len(of.Counters)+1:]), u}
		p.counters[string(name)] = c
	}
	return c
}

// usageOf returns what follows the use of a new counter; nil if that is not known.
func (p *Earlier) usageOf(of *plan.Rule) usage {
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

// keep keeps corrections of a counter.
func (p *Earlier) keep(c *counter, corrections []correction) {
	for _, found := range corrections {
		found.counters, found.key = c.counters, c.key
		p.found[found.entry] = append(p.found[found.entry], found)
	}
}

// follow notes what the response of an entry changes.
func (p *Earlier) follow(e *weblog.Entry, c *counter, of *plan.Rule, cost int64) {
	began := e.Start + e.Delayed
	at := func(after int64) int64 {
		if after > 0 {
			return began + after
		}
		return began + max(e.Duration, 0)
	}
	response := responseOf(e)
	switch n := response.cost(of.Cost.Answer); {
	case len(of.Charge) > 0 && e.Status != 0 && !slices.Contains(of.Charge, e.Status):
		heap.Push(&p.changes, change{at(e.StatusAfter), c.usage, of, -cost})
	case of.Cost.Answer != "" && n != weblog.Unknown:
		heap.Push(&p.changes, change{at(e.SettledAfter), c.usage, of, n - cost})
	case of.Algorithm.Held:
		heap.Push(&p.changes, change{at(0), c.usage, of, -cost})
	}
}

// Finish completes the corrections after the last entry.
func (p *Earlier) Finish() {
	for _, c := range p.counters {
		if c != nil {
			p.keep(c, c.usage.finish())
		}
	}
	p.counters, p.changes = nil, nil
}

// change is a later change of what an entry has used.
type change struct {
	at    int64
	usage usage
	rule  *plan.Rule
	n     int64
}

// changes is a heap whose root comes first.
type changes []change

func (c changes) Len() int           { return len(c) }
func (c changes) Less(i, j int) bool { return c[i].at < c[j].at }
func (c changes) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *changes) Push(x any)        { *c = append(*c, x.(change)) }

func (c *changes) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
