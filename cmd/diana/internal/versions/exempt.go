// SPDX-License-Identifier: MIT

package versions

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// LongestExemption is how far ahead the end of an exemption can be.
const LongestExemption = 366 * 24 * time.Hour

// Exemption exempts an actor from a rule for a while.
type Exemption struct {
	Rule  string
	Actor []string // as for Limiter.Reset
	Until time.Time
}

// Exempt returns a text of the remote configuration with an exemption, and how its override names the actor. All
// else in the text stays as it is. The error is a refusal if the text cannot have it.
func (r *Remote) Exempt(text []byte, e Exemption) ([]byte, rule.Who, error) {
	before, err := r.Compose("remote", text)
	if err != nil {
		return nil, rule.Who{}, invalid{err}
	}
	set, err := plan.Compile(before.Limits, before.Identity, before.Paths, r.words.Actors)
	if err != nil {
		return nil, rule.Who{}, invalid{err}
	}
	of, err := set.Named(e.Rule)
	if err != nil {
		return nil, rule.Who{}, refusal{http.StatusNotFound, err}
	}
	who, err := plan.WhoIs(set, of, e.Actor)
	if err != nil {
		return nil, who, refusal{http.StatusUnprocessableEntity, err}
	}
	if slices.ContainsFunc(of.Except, func(w rule.Who) bool { return w.Canonical() == who.Canonical() }) {
		return nil, who, impossible("the rule excepts %s already, without an end", who)
	}
	until := e.Until.UTC().Truncate(time.Second)
	next, err := withExemption(text, of.Index, who, until)
	if err != nil {
		return nil, who, impossible("rule %q: %w", of.Name, err)
	}
	after, err := r.Compose("remote", next)
	if err != nil {
		return nil, who, impossible("rule %q: %w", of.Name, err)
	}
	if !addsOnly(before, after, of.Index, rule.Override{Who: who.Canonical(), Exempt: true, Until: until}) {
		return nil, who, impossible("rule %q: %w", of.Name, errLayout)
	}
	return next, who, nil
}

// addsOnly reports whether two configurations differ by an override alone, of the rule with that number. An earlier
// override of the same actor may be gone. It changes the order of overrides.
func addsOnly(before, after *config.Config, number int, added rule.Override) bool {
	found := false
	for _, c := range []*config.Config{before, after} {
		of := ruleAt(c.Limits, number)
		if of == nil {
			return false
		}
		of.Overrides = slices.DeleteFunc(of.Overrides, func(o rule.Override) bool {
			same := o.Who.Canonical() == added.Who
			found = found || c == after && same && o.Exempt && o.Until.Equal(added.Until)
			return same
		})
		slices.SortFunc(of.Overrides, func(a, b rule.Override) int { return cmp.Compare(a.Who.String(), b.Who.String()) })
		if len(of.Overrides) == 0 {
			of.Overrides = nil
		}
	}
	return found && slices.EqualFunc(before.Limits, after.Limits, sameEntry)
}

// sameEntry reports whether two entries mean the same. Algorithms have functions, which DeepEqual cannot compare.
func sameEntry(a, b rule.Entry) bool {
	if len(a.Rules) != len(b.Rules) {
		return false
	}
	for i := range a.Rules {
		of, other := a.Rules[i], b.Rules[i]
		if !slices.Equal(of.Algorithm.Names, other.Algorithm.Names) {
			return false
		}
		of.Algorithm, other.Algorithm = limit.Algorithm{}, limit.Algorithm{}
		if !reflect.DeepEqual(of, other) {
			return false
		}
	}
	a.Rules, b.Rules = nil, nil
	return reflect.DeepEqual(a, b)
}

// ruleAt returns the rule with that number, in the order of the entries, or nil.
func ruleAt(entries []rule.Entry, number int) *rule.Rule {
	for i := range entries {
		if number < len(entries[i].Rules) {
			return &entries[i].Rules[number]
		}
		number -= len(entries[i].Rules)
	}
	return nil
}

// exempt answers POST /exempt.
func (a *API) exempt(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Rule    string         `json:"rule"`
		Actor   adminapi.Texts `json:"actor"`
		Until   *time.Time     `json:"until"`
		Seconds *int64         `json:"seconds"`
		who
	}
	if !adminapi.Read(w, r, `{"rule": "NAME", "actor": "VALUE", "seconds": 3600, "expect": "VERSION"}`, adminapi.MostBody, &body) {
		return
	}
	err := body.valid()
	until := time.Time{}
	if err == nil {
		until, err = endOf(time.Now(), body.Until, body.Seconds)
	}
	if err == nil && (body.Rule == "" || len(body.Actor) == 0) {
		err = errors.New(`expected "rule" and "actor"`)
	}
	if err != nil {
		adminapi.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	a.with(w, func(remote *Remote) error {
		d, err := remote.Get(r.Context())
		if err != nil {
			return err
		}
		if *body.Expect != VersionOf(d) {
			return Conflict{VersionOf(d)}
		}
		text, who, err := remote.Exempt(d.Text, Exemption{body.Rule, body.Actor, until})
		if err != nil {
			return err
		}
		if body.Comment == "" {
			body.Comment = Comment(body.Rule, who, until)
		}
		return a.change(w, r, remote, "exempt", body.who, text)
	})
}

// Comment is the comment of an exemption that has none.
func Comment(rule string, who rule.Who, until time.Time) string {
	text := fmt.Sprintf("exempt %s from rule %s until %s", who, rule, until.UTC().Format(time.RFC3339))
	return strings.ToValidUTF8(text[:min(len(text), mostComment)], "")
}

// endOf returns the end of an exemption that is given as a moment or in seconds.
func endOf(now time.Time, until *time.Time, seconds *int64) (time.Time, error) {
	if (until == nil) == (seconds == nil) {
		return time.Time{}, errors.New(`expected "until" or "seconds"`)
	}
	longest := int64(LongestExemption / time.Second)
	if seconds != nil {
		if *seconds < 1 || *seconds > longest {
			return time.Time{}, fmt.Errorf("seconds: expected 1 to %d, found %d", longest, *seconds)
		}
		return now.Add(time.Duration(*seconds) * time.Second), nil
	}
	if !until.After(now) || until.Sub(now) > LongestExemption {
		return time.Time{}, fmt.Errorf("until: expected a moment of the next 366 days, found %s", until.Format(time.RFC3339))
	}
	return *until, nil
}
