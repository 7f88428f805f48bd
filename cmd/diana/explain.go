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

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// explainCommand shows how a request would be evaluated.
type explainCommand struct {
	Config     string        `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration if there is none; with --admin none is needed. - is standard input."`
	Method     string        `short:"X" default:"GET" placeholder:"METHOD" help:"Method of the request (${default})."`
	Headers    []string      `name:"header" short:"H" sep:"none" placeholder:"'NAME: VALUE'" help:"A header of the request. May be repeated."`
	Data       string        `short:"d" placeholder:"JSON" help:"Body of the request, for rules that read it."`
	RemoteAddr netip.Addr    `default:"127.0.0.1" placeholder:"IP" help:"Address that the request comes from (${default})."`
	Peek       bool          `help:"Also show what is left now of global rules, as Redis counts them; with --admin of all rules, as that gateway counts them."`
	Admin      admin.Address `placeholder:"URL" help:"With --peek: admin listener of a gateway."`
	AdminToken admin.Token   `placeholder:"file:PATH|env:NAME" help:"The secret of the admin listener, see diana serve."`
	URL        string        `arg:"" name:"url" help:"URL of the request, or only its path; with --descriptors the domain."`

	Descriptors []string `sep:"none" placeholder:"PATH" help:"Explain descriptors by files of envoyproxy/ratelimit instead: a file, or a directory of *.yaml and *.yml. May be repeated."`
	Merge       bool     `name:"descriptors-merge" help:"Join files of --descriptors that have the same domain."`
	Entries     []string `arg:"" name:"key=value" sep:"none" optional:"" help:"With --descriptors: the entries of a descriptor, divided by commas."`
}

// Help is the end of what --help prints.
func (explainCommand) Help() string {
	return `Diana does not send the request, and counts it nowhere. --peek shows for each global rule how many more such requests it allows now (REMAINING), and after which time it allows more (RESETS IN). Each gateway counts local rules by itself, so --peek shows - for them. With --admin URL the gateway there shows what it has counted, also of local rules. Without a file the rules are those of the gateway.`
}

// Run prints the rules in the order in which they evaluate the request.
func (c *explainCommand) Run(ctx context.Context, o *command.Output) error {
	switch {
	case len(c.Descriptors) > 0 && (c.Config != "" || c.Peek):
		return command.Usagef("--config and --peek have no meaning with --descriptors")
	case len(c.Descriptors) > 0:
		return explainDescriptors(o, c.Descriptors, c.Merge, c.URL, c.Entries)
	case len(c.Entries) > 0:
		return command.Usagef("unexpected argument %s", c.Entries[0])
	case c.Admin.URL != nil && !c.Peek:
		return command.Usagef("--admin needs --peek")
	case c.Admin.URL == nil && c.AdminToken.IsSet():
		return command.Usagef("--admin-token needs --admin URL")
	}
	if !c.RemoteAddr.IsValid() {
		return command.Usagef("--remote-addr: expected an address, found an empty one")
	}
	what, err := c.request()
	if err != nil {
		return err
	}
	s := command.Chosen(c.Config)
	if c.Admin.URL != nil && s.BuiltIn() {
		return c.explainByGateway(ctx, o, what)
	}
	if !c.Peek {
		loaded, err := s.Load(o)
		if err != nil {
			return err
		}
		if loaded.Remote != nil {
			o.Complainf("diana: the configuration centre of %s is not asked; these are the local limits\n", s)
		}
		return printExplanation(o, s, loaded, what, c.Data, nil)
	}
	limiter, err := s.Open(diana.Options{Guest: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return o.Faults(s, err)
	}
	defer func() { _ = limiter.Close() }() // it has counted nothing
	return printExplanation(o, s, limiter.Config(), what, c.Data, func() (map[string]left, error) {
		if c.Admin.URL != nil {
			return c.leftAtGateway(ctx, o, s, limiter.Config().Version, what)
		}
		decision, err := limiter.Peek(ctx, *what)
		return leftOfRules(o, limiter.Config().Redis != nil, decision, err)
	})
}

// printExplanation prints the rules that evaluate a request with a body. peek returns what is left of their limits; nil:
// that is not printed.
func printExplanation(o *command.Output, s command.Settings, loaded *config.Config, r *rule.Request, body string, peek func() (map[string]left, error)) error {
	set, err := command.Compile(loaded)
	if err != nil {
		return o.Faults(s, err)
	}
	what := r.Method + " " + r.Path
	if err := set.WithBody(r, []byte(body)); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	explained, err := plan.Explain(set, r)
	if strange, ok := errors.AsType[*rule.PathError](err); ok {
		o.Printf("%s is answered with %d, because %v.\n", what, strange.Status(), strange)
		return nil
	}
	var remaining map[string]left // nil: not printed
	var unknown error
	if peek != nil {
		if remaining, unknown = peek(); remaining == nil {
			return unknown
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
	rows := make([]command.Explained, len(applied))
	for i, e := range applied {
		rows[i] = command.ExplainedBy(explanation(e))
	}
	printRules(o, what, s.String(), rows, remaining)
	printShortNames(o, applied)
	for _, e := range plan.ExplainBandwidths(set, r) {
		o.Printf("%s\n", bandwidthText(e))
	}
	skips := make([]string, len(excepted))
	for i, e := range excepted {
		skips[i] = command.ExceptedBy(explanation(e))
	}
	printExcepted(o, skips)
	for i, e := range applied {
		if e.Rule.Divert != nil && (i == 0 || applied[i-1].Rule.Divert != e.Rule.Divert) {
			o.Printf("\nA request that a rule of %s refuses is diverted: %s.\n", command.Legible(e.Rule.URL.String()), command.Legible(e.Rule.Divert.String()))
		}
	}
	return unknown
}

// explanation returns what a limiter says of a rule.
func explanation(e plan.Explanation) diana.Explanation {
	return diana.Explanation{Rule: e.Rule.Declared(), URL: e.Rule.URL, Key: e.Key, Cost: e.Cost, By: e.By, Class: e.Class, Until: e.Until}
}

// printExcepted prints which rules skip the request.
func printExcepted(o *command.Output, skips []string) {
	if len(skips) > 0 {
		o.Printf("\n%s\n", strings.Join(skips, "\n"))
	}
}

// printShortNames says by which names clients know rules that have none of their own.
func printShortNames(o *command.Output, explained []plan.Explanation) {
	first := true
	for _, e := range explained {
		if e.Rule.Short == e.Rule.Name {
			continue
		}
		if first {
			o.Printf("\n")
			first = false
		}
		o.Printf("Clients read %q for the rule %q.\n", e.Rule.Short, e.Rule.Name)
	}
}

// bandwidthText says how an answer is slowed.
func bandwidthText(e plan.BandwidthExplanation) string {
	text := "The answer is slowed to a bandwidth of " + command.Legible(e.Bandwidth.String()) + " (" + command.Legible(e.Bandwidth.URL.String()) + ")"
	if e.Bandwidth.Shared() {
		text += ", shared under the key " + plan.ActorText(e.Key)
	}
	return text + "."
}

// table returns the rules and keys in columns, with what is left if that is not nil.
func table(explained []command.Explained, remaining map[string]left) string {
	var rows [][]string
	row := func(l left, key string, cells ...string) {
		if remaining != nil {
			cells = append(cells, l.remaining, l.resets)
		}
		rows = append(rows, append(cells, key))
	}
	row(left{"REMAINING", "RESETS IN"}, "KEY", "", "URL", "RULE", "ALGO", "LIMIT", "SCOPE", "MODE")
	for i, e := range explained {
		of, ok := remaining[e.Rule]
		if !ok {
			of = unknownLeft
		}
		row(of, e.Key, strconv.Itoa(i+1), command.Legible(e.URL), command.Legible(e.Rule), e.Algo, e.Limit, e.Scope, e.Mode)
	}
	return command.Columns(rows, 1, 0)
}

// printRules prints the rules that evaluate a request. where has them.
func printRules(o *command.Output, what, where string, explained []command.Explained, remaining map[string]left) {
	if len(explained) == 0 {
		o.Printf("%s is evaluated by no rule of %s.\n", what, where)
		return
	}
	o.Printf("%s is evaluated by %s of %s, in this order:\n\n", what, command.Rules(len(explained)), where)
	o.Printf("%s", table(explained, remaining))
}
