// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// resetCommand forgets what a rule has counted of an actor.
type resetCommand struct {
	Config     string     `placeholder:"FILE" help:"Configuration file of the gateways. Default: diana.yaml."`
	Rule       string     `required:"" placeholder:"NAME" help:"Name of the rule."`
	Actors     []string   `name:"actor" required:"" sep:"none" placeholder:"VALUE" help:"The actor, such as ann. May be repeated."`
	Admins     []*url.URL `name:"admin" sep:"none" placeholder:"URL" help:"Admin listener of a gateway. May be repeated."`
	AdminToken adminToken `placeholder:"file:PATH|env:NAME" help:"The secret of the admin listeners, see diana serve."`
}

// Help is the end of what --help prints.
func (resetCommand) Help() string {
	return `The actor may use the whole limit again. Diana resets a global rule in Redis. Each gateway counts a local rule by itself, so name the admin listener of each: --admin URL, with --admin-token.

The actor is a value (ann), or a key as diana explain, the log and /status print it (header:X-Account-Id=3:ann;). For a rule with several actors name each: --actor ip=192.0.2.1 --actor account=ann. For a rule with actor: all write --actor all.`
}

// Run resets in Redis and by the admin listeners. It tries all of them, also after an error.
func (c *resetCommand) Run(ctx context.Context, o *output) error {
	if err := c.valid(); err != nil {
		return err
	}
	s := chosen(c.Config)
	if s.builtIn() {
		return usagef("no %s here, expected --config with the configuration file of the gateways", usualFile)
	}
	token, err := c.AdminToken.value()
	if err != nil {
		return err
	}
	limiter, err := s.open(diana.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return o.faults(s, err)
	}
	defer func() { _ = limiter.Close() }() // it has counted nothing
	active := limiter.Config()
	set, err := compile(active)
	if err != nil {
		return err
	}
	of, err := set.Named(c.Rule)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	keys, err := plan.ActorKeys(set, of, c.Actors)
	if err != nil {
		return err
	}
	inRedis := of.Scope == rule.Global && active.Redis != nil
	if !inRedis && len(c.Admins) == 0 {
		return usagef("each gateway counts rule %q by itself, expected --admin URL of each gateway", of.Name)
	}
	failed := inRedis && !resetInRedis(ctx, o, of.Name, keys, limiter.Reset)
	for _, admin := range c.Admins {
		failed = !resetByAdmin(ctx, o, admin, token, resetRequest{c.Rule, c.Actors}) || failed
	}
	if failed {
		return errReported
	}
	return nil
}

// valid returns an error if the flags do not fit together.
func (c *resetCommand) valid() error {
	for _, u := range c.Admins {
		if err := validAdmin(u); err != nil {
			return err
		}
	}
	switch {
	case c.Rule == "":
		return usagef("--rule: expected the name of a rule, found an empty one")
	case len(c.Admins) > 0 && !c.AdminToken.isSet():
		return usagef("--admin needs --admin-token, the same secret as that of diana serve")
	case len(c.Admins) == 0 && c.AdminToken.isSet():
		return usagef("--admin-token needs --admin URL")
	}
	return nil
}

// resetInRedis resets keys in Redis, and reports whether it could.
func resetInRedis(ctx context.Context, o *output, name string, keys []string, reset resetter) bool {
	for _, key := range keys {
		if err := reset(ctx, name, plan.ActorText(key)); err != nil {
			o.complainf("diana: Redis: %s not reset: %v\n", plan.ActorText(key), err)
			return false
		}
		o.printf("Redis: %s reset\n", plan.ActorText(key))
	}
	return true
}

// resetByAdmin has a gateway reset an actor, and reports whether it did.
func resetByAdmin(ctx context.Context, o *output, admin *url.URL, token string, r resetRequest) bool {
	answer, err := postAdmin(ctx, admin.JoinPath("reset"), token, r)
	if err != nil {
		o.complainf("diana: %s: not reset: %v\n", admin, err)
		return false
	}
	for _, actor := range answer.Actors {
		o.printf("%s: %s reset\n", admin, legible(actor))
	}
	return true
}

// postAdmin has an admin listener reset an actor.
func postAdmin(ctx context.Context, to *url.URL, token string, body resetRequest) (answer resetAnswer, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(text))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := askAdmin(r, token, 1<<20)
	if err != nil {
		return answer, err
	}
	if got.code != http.StatusOK {
		return answer, adminError(got.status, got.body)
	}
	return answer, json.Unmarshal(got.body, &answer)
}

// adminError returns the error of an answer: the detail of the problem in its body, if there is one.
func adminError(status string, body []byte) error {
	var problem struct{ Detail string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		return errors.New(status)
	}
	return fmt.Errorf("%s: %s", status, legible(strings.TrimSpace(problem.Detail)))
}
