// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// explainCommand shows how a request would be evaluated.
type explainCommand struct {
	Config     string     `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration if there is none."`
	Method     string     `short:"X" default:"GET" placeholder:"METHOD" help:"Method of the request (${default})."`
	Headers    []string   `name:"header" short:"H" sep:"none" placeholder:"'NAME: VALUE'" help:"A header of the request. May be repeated."`
	Data       string     `short:"d" placeholder:"JSON" help:"Body of the request, for rules that read it."`
	RemoteAddr netip.Addr `default:"127.0.0.1" placeholder:"IP" help:"Address that the request comes from (${default})."`
	Peek       bool       `help:"Also show what is left now of global rules, as Redis counts them."`
	URL        string     `arg:"" name:"url" help:"URL of the request, or only its path; with --descriptors the domain."`

	Descriptors []string `sep:"none" placeholder:"PATH" help:"Explain descriptors by files of envoyproxy/ratelimit instead: a file, or a directory of *.yaml and *.yml. May be repeated."`
	Merge       bool     `name:"descriptors-merge" help:"Join files of --descriptors that have the same domain."`
	Entries     []string `arg:"" name:"key=value" sep:"none" optional:"" help:"With --descriptors: the entries of a descriptor, divided by commas."`
}

// Help is the end of what --help prints.
func (explainCommand) Help() string {
	return `Diana does not send the request, and counts it nowhere. --peek shows for each global rule how many more such requests it allows now (REMAINING), and after which time it allows more (RESETS IN). Each gateway counts local rules by itself, so --peek shows - for them.`
}

// Run prints the rules in the order in which they evaluate the request.
func (c *explainCommand) Run(ctx context.Context, o *output) error {
	switch {
	case len(c.Descriptors) > 0 && (c.Config != "" || c.Peek):
		return usagef("--config and --peek have no meaning with --descriptors")
	case len(c.Descriptors) > 0:
		return explainDescriptors(o, c.Descriptors, c.Merge, c.URL, c.Entries)
	case len(c.Entries) > 0:
		return usagef("unexpected argument %s", c.Entries[0])
	}
	if !c.RemoteAddr.IsValid() {
		return usagef("--remote-addr: expected an address, found an empty one")
	}
	request, err := c.request()
	if err != nil {
		return err
	}
	s := chosen(c.Config)
	what := rule.Request{Method: request.Method, Path: paths.Sent(request.URL), HTTP: request}
	if !c.Peek {
		loaded, err := s.load(o)
		if err != nil {
			return err
		}
		if loaded.Remote != nil {
			o.complainf("diana: the configuration centre of %s is not asked; these are the local limits\n", s)
		}
		return printExplanation(o, s, loaded, &what, c.Data, nil)
	}
	limiter, err := s.open(diana.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return o.faults(s, err)
	}
	defer func() { _ = limiter.Close() }() // it has counted nothing
	return printExplanation(o, s, limiter.Config(), &what, c.Data, func() (map[string]left, error) {
		decision, err := limiter.Peek(ctx, what)
		return leftOfRules(o, decision, err)
	})
}

// printExplanation prints the rules that evaluate a request with a body. peek returns what is left of their limits; nil:
// that is not printed.
func printExplanation(o *output, s settings, loaded *config.Config, r *rule.Request, body string, peek func() (map[string]left, error)) error {
	set, err := compile(loaded)
	if err != nil {
		return o.faults(s, err)
	}
	what := r.Method + " " + r.Path
	if err := set.WithBody(r, []byte(body)); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	explained, err := plan.Explain(set, r)
	if strange, ok := errors.AsType[*rule.PathError](err); ok {
		o.printf("%s is answered with %d, because %v.\n", what, strange.Status(), strange)
		return nil
	}
	var remaining map[string]left // nil: not printed
	if peek != nil {
		if remaining, err = peek(); err != nil {
			return err
		}
	}
	var applied, excepted []plan.Explanation
	for _, e := range explained {
		if e.Excepted {
			excepted = append(excepted, e)
		} else {
			applied = append(applied, e)
		}
	}
	if len(applied) == 0 {
		o.printf("%s is evaluated by no rule of %s.\n", what, s)
	} else {
		o.printf("%s is evaluated by %s of %s, in this order:\n\n", what, rules(len(applied)), s)
		o.printf("%s", table(applied, remaining))
	}
	for _, e := range plan.ExplainBandwidths(set, r) {
		o.printf("%s\n", bandwidthText(e))
	}
	for i, e := range excepted {
		if i == 0 {
			o.printf("\n")
		}
		o.printf("%s excepts %s%s.\n", legible(e.Rule.Name), legible(e.By.String()), untilText(e))
	}
	for i, e := range applied {
		if e.Rule.Divert != nil && (i == 0 || applied[i-1].Rule.Divert != e.Rule.Divert) {
			o.printf("\nA request that a rule of %s refuses is diverted: %s.\n", legible(e.Rule.URL.String()), legible(e.Rule.Divert.String()))
		}
	}
	return nil
}

// untilText says when the override of an explanation ends.
func untilText(e plan.Explanation) string {
	if e.Until.IsZero() {
		return ""
	}
	return " until " + e.Until.Format(time.RFC3339)
}

// bandwidthText says how an answer is slowed.
func bandwidthText(e plan.BandwidthExplanation) string {
	text := "The answer is slowed to a bandwidth of " + legible(e.Bandwidth.String()) + " (" + legible(e.Bandwidth.URL.String()) + ")"
	if e.Bandwidth.Shared() {
		text += ", shared under the key " + plan.ActorText(e.Key)
	}
	return text + "."
}

// table returns the rules and keys in columns, with what is left if that is not nil.
func table(explained []plan.Explanation, remaining map[string]left) string {
	var rows [][]string
	row := func(l left, key string, cells ...string) {
		if remaining != nil {
			cells = append(cells, l.remaining, l.resets)
		}
		rows = append(rows, append(cells, key))
	}
	row(left{"REMAINING", "RESETS IN"}, "KEY", "", "URL", "RULE", "ALGO", "LIMIT", "SCOPE", "MODE")
	for i, e := range explained {
		r := e.Rule
		l := limitText(e)
		if e.By != (rule.Who{}) {
			l += " for " + legible(e.By.String()) + untilText(e)
		}
		if e.Class != "" {
			l += " for class " + legible(e.Class)
		}
		of, ok := remaining[r.Name]
		if !ok {
			of = unknownLeft
		}
		row(of, plan.ActorText(e.Key), strconv.Itoa(i+1), legible(r.URL.String()), legible(r.Name), r.Algorithm.Name(), l,
			r.Scope.String(), r.Mode())
	}
	return columns(rows, 1, 0)
}

// limitText says what a rule allows, and the cost of the request if that is not 1.
func limitText(e plan.Explanation) string {
	r := e.Rule
	text := strconv.FormatInt(r.Limit.N, 10)
	if r.Algorithm.Held {
		text += " at once"
	} else {
		text += "/" + names.UnitOf(r.Limit)
	}
	if r.Limit.Zone != "" {
		text += " in " + legible(r.Limit.Zone)
	}
	if r.Wait > 0 {
		text += ", wait " + r.Wait.String()
	}
	if e.Cost != 1 || r.Cost.Header != "" || r.Cost.Reserve != "" {
		text += fmt.Sprintf(", costs %d", e.Cost)
	}
	if len(r.Charge) > 0 {
		text += fmt.Sprintf(", charged for %v", r.Charge)
	}
	return text
}

// legible returns text, quoted if it has characters that cannot be printed.
func legible(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text)
	}
	return text
}
