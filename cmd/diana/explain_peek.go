// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// left is what is left now of a rule's limit for the actor of a request.
type left struct{ remaining, resets string }

// unknownLeft is for a rule that Redis does not count, or that Redis was not asked about.
var unknownLeft = left{"-", "-"}

// leftOfRules returns what is left of each global rule, by the rule's name. redis says whether
// the configuration has one. d and err are what Peek has returned. With the error command.ErrReported nothing is known.
func leftOfRules(o *command.Output, redis bool, d diana.Decision, err error) (map[string]left, error) {
	if err != nil {
		return nil, fmt.Errorf("--peek: %w", err)
	}
	if !redis {
		o.Complainf("diana: the configuration has no redis, so each gateway counts for itself, and --peek shows nothing without --admin URL\n")
		return map[string]left{}, nil
	}
	if d.Degraded {
		o.Complainf("diana: Redis is out of reach, so what is left of global rules is unknown\n")
		return map[string]left{}, command.ErrReported
	}
	all := map[string]left{}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Rule.Scope == rule.Global && v.Remaining != limit.Unknown {
			all[v.Rule.Name] = leftOf(v.Outcome)
		}
	}
	return all, nil
}

// explainByGateway prints the rules by which a gateway evaluates a request, and how much each has left.
func (c *explainCommand) explainByGateway(ctx context.Context, o *command.Output, r *rule.Request) error {
	if c.Data != "" {
		return command.Usagef("--data needs --config, because the gateway gets no body")
	}
	answer, remaining, err := c.askGateway(ctx, o, r)
	if err != nil {
		return err
	}
	rows := make([]command.Explained, len(answer.Rules))
	for i, of := range answer.Rules {
		if rows[i] = of.Explained; of.URL == "" {
			return fmt.Errorf("--peek: %s: an older gateway does not explain its rules, expected --config with its configuration file", c.Admin.URL.Redacted())
		}
	}
	printRules(o, r.Method+" "+r.Path, c.Admin.URL.Redacted(), rows, remaining)
	printExcepted(o, answer.Excepted)
	return nil
}

// leftAtGateway returns what a gateway has left of each rule for a request, by the rule's name. version is that of the
// configuration that s has.
func (c *explainCommand) leftAtGateway(ctx context.Context, o *command.Output, s command.Settings, version string, r *rule.Request) (map[string]left, error) {
	answer, remaining, err := c.askGateway(ctx, o, r)
	if err == nil && answer.Version != version {
		o.Complainf("diana: the gateway has another configuration than %s, so its rules can differ\n", s)
	}
	return remaining, err
}

// askGateway has a gateway evaluate a request. It also returns what is left of each rule, by the rule's name.
func (c *explainCommand) askGateway(ctx context.Context, o *command.Output, r *rule.Request) (answer admin.PeekAnswer, remaining map[string]left, err error) {
	token := ""
	if c.AdminToken.IsSet() {
		if token, err = c.AdminToken.Value(); err != nil {
			return answer, nil, err
		}
	}
	text, err := c.requestText()
	if err != nil {
		return answer, nil, err
	}
	if err := admin.Post(ctx, c.Admin.URL.JoinPath("api/v1/peek"), token, admin.PeekRequest{Request: text, Actors: r.Actors, From: c.RemoteAddr}, &answer); err != nil {
		return answer, nil, fmt.Errorf("--peek: %s: %w", c.Admin.URL.Redacted(), err)
	}
	if answer.Rules == nil {
		return answer, nil, fmt.Errorf("--peek: %s: expected the admin listener of diana serve", c.Admin.URL.Redacted())
	}
	if answer.Degraded {
		o.Complainf("diana: the gateway has no Redis now, so it counts global rules by itself\n")
	}
	remaining = map[string]left{}
	for _, r := range answer.Rules {
		of := unknownLeft
		if r.Remaining != nil {
			of.remaining = strconv.FormatInt(*r.Remaining, 10)
		}
		if r.ResetSeconds != nil {
			of.resets = resetText(time.Duration(*r.ResetSeconds * float64(time.Second)))
		}
		remaining[r.Rule] = of
	}
	return answer, remaining, nil
}

// leftOf returns the columns of an outcome. Time adds nothing to a counter without a Reset: it is
// full, or it counts concurrent requests.
func leftOf(o limit.Outcome) left {
	l := left{strconv.FormatInt(o.Remaining, 10), "-"}
	if o.Reset > 0 {
		l.resets = resetText(time.Duration(o.Reset) * time.Microsecond)
	}
	return l
}

func resetText(d time.Duration) string { return d.Round(time.Millisecond).String() }
