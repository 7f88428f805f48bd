// SPDX-License-Identifier: MIT

package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

// Snapshot is what an operator sees at one moment.
type Snapshot struct {
	At         time.Time           `json:"at"`
	Gateway    Gateway             `json:"gateway"`
	Redis      Redis               `json:"redis"`
	Remote     *diana.RemoteStatus `json:"remote"`
	Events     []Event             `json:"events"`
	Total      Totals              `json:"total"`
	Rules      []Rule              `json:"rules"`
	RulesTotal int                 `json:"rules_total"` // those that the query accepts
	TopRefused []Refused           `json:"top_refused"`
}

// Gateway is the state of this gateway.
type Gateway struct {
	Version       string     `json:"version"` // of the program
	Source        string     `json:"source"`
	ConfigVersion string     `json:"config_version"`
	Since         time.Time  `json:"since"` // of the configuration
	Reason        string     `json:"reason"`
	Degraded      bool       `json:"degraded"`
	DegradedSince *time.Time `json:"degraded_since,omitempty"`
	Gateways      int        `json:"gateways"`
	Keys          int        `json:"keys"`
	MaxKeys       int        `json:"max_keys"`
	Evictions     int64      `json:"evictions"`
	Overflow      int64      `json:"overflow"` // of the rules that are shown
	Memory        int64      `json:"memory_bytes"`
	Recent        any        `json:"recent,omitempty"`
}

// Redis is the state of Redis.
type Redis struct {
	Configured bool       `json:"configured"`
	Reached    bool       `json:"reached"`
	Since      *time.Time `json:"since,omitempty"` // since when it is unavailable
}

// Totals are the decisions of all rules by second, the oldest first.
type Totals struct {
	Allowed []int64 `json:"allowed"`
	Refused []int64 `json:"refused"`
	Delayed []int64 `json:"delayed"`
	Shadow  []int64 `json:"shadow"`
}

// Rule is one rule with its rates.
type Rule struct {
	Name        string  `json:"name"`
	URL         string  `json:"url"`
	Algorithm   string  `json:"algo"`
	Scope       string  `json:"scope"`
	Mode        string  `json:"mode"`
	Limit       int64   `json:"limit"`
	UnitSeconds float64 `json:"unit_seconds"`

	AllowedPerSecond float64 `json:"allowed_per_second"`
	RefusedPerSecond float64 `json:"refused_per_second"`
	DelayedPerSecond float64 `json:"delayed_per_second"`
	ShadowPerSecond  float64 `json:"shadow_per_second"`

	Allowed int64              `json:"allowed"` // since the program started
	Refused int64              `json:"refused"`
	History []uint32           `json:"history"` // refusals of ten seconds each, the oldest first
	Top     []diana.TopRefused `json:"top"`

	// Of a rule whose cost is known with the response, as in diana.RuleStatus; omitted if empty.
	Answer     string  `json:"answer,omitempty"`
	Cost       int64   `json:"cost,omitempty"`
	Reserved   int64   `json:"reserved,omitempty"`
	SpentRatio float64 `json:"spent_ratio,omitempty"`
	SpentBy    string  `json:"spent_by,omitempty"`

	// Of adaptive concurrency, as in diana.RuleStatus.
	Baseline float64          `json:"baseline_seconds,omitempty"`
	Shed     map[string]int64 `json:"shed,omitempty"`

	Remaining      *int64 `json:"remaining"`       // of the tightest actor, see tightest; nil: unknown
	RemainingActor string `json:"remaining_actor"` // its key; "" if the rule counts all clients together
}

// query is what of the rules a client asks for.
type query struct {
	text          string // a part of the name or the URL
	offset, rules int
}

const (
	usualRules = 50
	mostRules  = 500
)

func parseQuery(values url.Values) (q query, err error) {
	q = query{text: strings.ToLower(values.Get("q")), rules: usualRules}
	for name, at := range map[string]*int{"offset": &q.offset, "rules": &q.rules} {
		if !values.Has(name) {
			continue
		}
		n, err := strconv.Atoi(values.Get(name))
		if err != nil || n < 0 {
			return q, fmt.Errorf("%s: %.20q, expected a whole number", name, values.Get(name))
		}
		*at = n
	}
	q.rules = min(q.rules, mostRules)
	return q, nil
}

// accepts reports whether a rule is asked for.
func (q *query) accepts(r *ruleHistory, url func() string) bool {
	return q.text == "" || strings.Contains(strings.ToLower(r.name), q.text) || strings.Contains(strings.ToLower(url()), q.text)
}

// snapshot returns what is known now.
func (l *Live) snapshot(q query) *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.refused.at) > 2*time.Second { // nobody follows
		l.refused.measure(now, l.history.refusing(), l.options.Limiter.RuleStatus)
	}
	s := &Snapshot{
		At: l.history.now.UTC(), Remote: l.state.Config.Remote, Total: l.history.totals(),
		Events: append([]Event{}, l.events.list...), TopRefused: append([]Refused{}, l.refused.list...), Rules: []Rule{},
	}
	s.Gateway = l.gateway()
	if c := l.options.Limiter.Config(); c.Redis != nil {
		s.Redis = Redis{Configured: true, Reached: !l.state.Degraded, Since: l.state.DegradedSince}
	}
	list := l.history.busiest(func(r *ruleHistory) bool {
		return q.accepts(r, func() string {
			status, _ := l.options.Limiter.RuleStatus(r.name)
			return status.URL
		})
	})
	s.RulesTotal = len(list)
	from := min(q.offset, len(list))
	for _, r := range list[from:min(from+q.rules, len(list))] {
		if status, ok := l.options.Limiter.RuleStatus(r.name); ok {
			one := l.history.rule(r, &status)
			one.tightest(l.options.Limiter.PeekActor)
			s.Rules = append(s.Rules, one)
			s.Gateway.Overflow += status.Overflow
		}
	}
	return s
}

// gateway returns the state of this gateway.
func (l *Live) gateway() Gateway {
	st := &l.state
	g := Gateway{
		Version: l.options.Version, Source: st.Config.Source, ConfigVersion: st.Config.Version, Since: st.Config.Since, Reason: st.Config.Reason,
		Degraded: st.Degraded, DegradedSince: st.DegradedSince,
		Gateways: st.Gateways, Keys: st.Keys, MaxKeys: st.MaxKeys, Evictions: st.Evictions, Memory: l.options.Memory(),
	}
	if l.options.Recent != nil {
		g.Recent = l.options.Recent()
	}
	return g
}

// totals returns the seconds, the oldest first.
func (h *history) totals() Totals {
	t := Totals{make([]int64, seconds), make([]int64, seconds), make([]int64, seconds), make([]int64, seconds)}
	for i, c := range h.bySecond.until(h.bySecond.span) {
		t.Allowed[i], t.Refused[i], t.Delayed[i], t.Shadow[i] = c.Allowed, c.Refused, c.Delayed, c.ShadowRefused
	}
	return t
}

// rule returns a rule as clients see it.
func (h *history) rule(r *ruleHistory, s *diana.RuleStatus) Rule {
	return Rule{
		Name: s.Name, URL: s.URL, Algorithm: s.Algorithm, Scope: s.Scope, Mode: s.Mode, Limit: s.Limit, UnitSeconds: s.UnitSeconds,
		AllowedPerSecond: h.perSecond(r.latest.Allowed), RefusedPerSecond: h.perSecond(r.latest.Refused),
		DelayedPerSecond: h.perSecond(r.latest.Delayed), ShadowPerSecond: h.perSecond(r.latest.ShadowRefused),
		Allowed: r.total.Allowed, Refused: r.total.Refused, History: h.byTen(r), Top: s.TopRefused,
		Answer: s.Answer, Cost: s.Cost, Reserved: s.Reserved, SpentRatio: s.SpentRatio, SpentBy: s.SpentBy,
		Baseline: s.Baseline, Shed: s.Shed,
	}
}

// encoded returns the snapshot for a query as JSON.
func (l *Live) encoded(q query) []byte {
	text, err := json.Marshal(l.snapshot(q))
	if err != nil {
		panic(err) // all values of a Snapshot can be encoded
	}
	return text
}

// Register adds the routes of the API.
func (l *Live) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/live", func(w http.ResponseWriter, r *http.Request) {
		q, err := parseQuery(r.URL.Query())
		if err != nil {
			adminapi.Problem(w, http.StatusBadRequest, err.Error())
			return
		}
		adminapi.Answer(w, l.snapshot(q))
	})
	mux.HandleFunc("GET /api/v1/live/stream", l.stream)
	mux.HandleFunc("GET /api/v1/fleet", l.answerFleet)
}
