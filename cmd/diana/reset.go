// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// resetCommand forgets what a rule has counted of an actor.
type resetCommand struct {
	Config     string          `placeholder:"FILE" help:"Configuration file of the gateways. Default: diana.yaml; with --admin none is needed."`
	Rule       string          `required:"" placeholder:"NAME" help:"Name of the rule."`
	Actors     []string        `name:"actor" required:"" sep:"none" placeholder:"VALUE" help:"The actor, such as ann. May be repeated."`
	Admins     []admin.Address `name:"admin" sep:"none" placeholder:"URL" help:"Admin listener of a gateway. May be repeated."`
	AdminToken admin.Token     `placeholder:"file:PATH|env:NAME" help:"The secret of the admin listeners, see diana serve."`
}

// Help is the end of what --help prints.
func (resetCommand) Help() string {
	return `The actor may use the whole limit again. Diana resets a global rule in Redis. Each gateway counts a local rule by itself, so name the admin listener of each: --admin URL, with --admin-token.

The actor is a value (ann), or a key as diana explain, the log and /status print it (header:X-Account-Id=3:ann;). For a rule with several actors name each: --actor ip=192.0.2.1 --actor account=ann. For a rule with actor: all write --actor all.`
}

// Run resets in Redis and by the admin listeners. It tries all of them, also after an error.
func (c *resetCommand) Run(ctx context.Context, o *command.Output) error {
	if err := c.valid(); err != nil {
		return err
	}
	s := command.Chosen(c.Config)
	if s.BuiltIn() && len(c.Admins) == 0 {
		return command.Usagef("no %s here, expected --config with the configuration file of the gateways, or --admin URL of each", command.UsualFile)
	}
	token, err := c.AdminToken.Value()
	if err != nil {
		return err
	}
	failed := false
	if !s.BuiltIn() {
		if failed, err = c.resetByFile(ctx, o, s); err != nil {
			return err
		}
	}
	for _, gateway := range c.Admins {
		failed = !resetByAdmin(ctx, o, gateway.URL, token, admin.ResetRequest{Rule: c.Rule, Actor: c.Actors}) || failed
	}
	if failed {
		return command.ErrReported
	}
	return nil
}

// resetByFile resets in the Redis that a file names, if it counts the rule, and reports whether that failed. The error is
// about the file or the flags.
func (c *resetCommand) resetByFile(ctx context.Context, o *command.Output, s command.Settings) (failed bool, err error) {
	limiter, err := s.Open(diana.Options{Guest: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return false, o.Faults(s, err)
	}
	defer func() { _ = limiter.Close() }() // it has counted nothing
	active := limiter.Config()
	set, err := command.Compile(active)
	if err != nil {
		return false, err
	}
	of, err := set.Named(c.Rule)
	if err != nil {
		return false, fmt.Errorf("%s: %w", s, err)
	}
	keys, err := plan.ActorKeys(set, of, c.Actors)
	if err != nil {
		return false, err
	}
	inRedis := of.Scope == rule.Global && active.Redis != nil
	if !inRedis && len(c.Admins) == 0 {
		return false, command.Usagef("each gateway counts rule %q by itself, expected --admin URL of each gateway", of.Name)
	}
	return inRedis && !resetInRedis(ctx, o, of.Name, keys, limiter.Reset), nil
}

// valid returns an error if the flags do not fit together.
func (c *resetCommand) valid() error {
	switch {
	case c.Rule == "":
		return command.Usagef("--rule: expected the name of a rule, found an empty one")
	case len(c.Admins) > 0 && !c.AdminToken.IsSet():
		return command.Usagef("--admin needs --admin-token, the same secret as that of diana serve")
	case len(c.Admins) == 0 && c.AdminToken.IsSet():
		return command.Usagef("--admin-token needs --admin URL")
	}
	return nil
}

// resetInRedis resets keys in Redis, and reports whether it could.
func resetInRedis(ctx context.Context, o *command.Output, name string, keys []string, reset admin.Resetter) bool {
	for _, key := range keys {
		if err := reset(ctx, name, plan.ActorText(key)); err != nil {
			o.Complainf("diana: Redis: %s not reset: %v\n", plan.ActorText(key), err)
			return false
		}
		o.Printf("Redis: %s reset\n", plan.ActorText(key))
	}
	return true
}

// resetByAdmin has a gateway reset an actor, and reports whether it did.
func resetByAdmin(ctx context.Context, o *command.Output, gateway *url.URL, token string, r admin.ResetRequest) bool {
	var answer admin.ResetAnswer
	if err := admin.Post(ctx, gateway.JoinPath("reset"), token, r, &answer); err != nil {
		o.Complainf("diana: %s: not reset: %v\n", gateway, err)
		return false
	}
	for _, actor := range answer.Actors {
		o.Printf("%s: %s reset\n", gateway, command.Legible(actor))
	}
	return true
}
