// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// readyTime is how long a start, or a change of Redis, waits for Redis.
const readyTime = time.Second

// Open returns a Limiter with the configuration in a file. It follows the file and the
// remote configuration that the file may name: a change takes effect within two seconds. A
// change that is not a valid configuration is logged and changes nothing. The error of an
// invalid file is config.Errors, which names every mistake. Open waits for a remote
// configuration for at most three seconds, and for Redis for at most one: see
// [Limiter.Ready].
func Open(file string) (*Limiter, error) { return Options{}.Open(file) }

// Open is like the function of that name, with these options.
func (o Options) Open(file string) (*Limiter, error) {
	o = o.filled()
	var l *Limiter
	f, err := follow.Start(follow.Options{
		File:       file,
		Vocabulary: o.Vocabulary,
		Logger:     o.Logger,
		Now:        o.now,
		Apply: func(c *config.Config) (err error) {
			if l != nil {
				return l.apply(c)
			}
			l, err = o.limiter(c)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	l.file, l.follower = file, f
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	_ = l.Ready(ctx) // without Redis, on_error decides
	return l, nil
}

// New returns a Limiter for a configuration that the program has made or read. The program
// must not change c afterwards. New does no network I/O: connections to Redis are opened in
// the background, see [Limiter.Ready]. New does not follow anything, not even the remote
// configuration that c may name: [Open] does.
func (o Options) New(c *config.Config) (*Limiter, error) {
	l, err := o.filled().limiter(c)
	if err != nil {
		return nil, err
	}
	l.warnOfRemote(c)
	return l, nil
}

// Update puts a configuration in force at run time, atomically: each request is evaluated by
// the old configuration or by the new one. Rules that mean the same keep their counters. An
// error means that nothing has changed. If c changes Redis, Update waits for the new one for
// at most a second, while the old one decides. The program must not change c afterwards.
//
// Update is safe for concurrent use. It is an error after Close, and on a Limiter that
// follows a file, because the next change of the file would undo it.
func (l *Limiter) Update(c *config.Config) error {
	if l.follower != nil {
		return fmt.Errorf("diana: Update: this Limiter follows %s, expected that file to be changed instead", l.file)
	}
	if err := l.apply(c); err != nil {
		return err
	}
	l.warnOfRemote(c)
	return nil
}

// warnOfRemote warns that only a Limiter of Open follows a remote configuration.
func (l *Limiter) warnOfRemote(c *config.Config) {
	if c.Remote != nil {
		l.options.Logger.Warn("the remote configuration is not followed: this program gives the configuration itself", "centre", c.Remote.Where())
	}
}

// Reload reads the file of [Open] now. An error means that nothing has changed. Without a file
// Reload does nothing. After Close it is an error.
func (l *Limiter) Reload() error {
	if l.follower == nil {
		return nil
	}
	return l.follower.Reload()
}

// errClosed is the error of a change after Close.
var errClosed = errors.New("diana: this Limiter is closed")

// apply puts a configuration in force, with the connection to the Redis that it names. An
// error means that nothing has changed.
func (l *Limiter) apply(c *config.Config) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	c = c.Filled(l.options.Vocabulary)
	next, err := l.compile(c)
	if err != nil {
		return err
	}
	redis, err := l.connect(c.Redis)
	if err != nil {
		return err
	}
	before := l.active()
	if err := l.swap(next, redis); err != nil {
		l.abandon(redis)
		return err
	}
	redis.config = c.Redis // its timeout may be another one
	if before != nil {
		l.options.Logger.Info("configuration changed", "source", c.Source, "version", c.Version,
			"rules", len(next.set.Rules), "changes", diff.Configs(before.config, c))
	}
	for _, w := range c.Warnings {
		l.options.Logger.Warn("configuration", "warning", w.String())
	}
	return nil
}

// Ready waits until the limits can be kept: until Redis has answered and the gateways there
// were counted, if there are global rules. The error is ctx's if that ends first. Until then
// requests are evaluated without Redis, see Decision.Degraded. [Open] has waited for it, for
// a second at most.
func (l *Limiter) Ready(ctx context.Context) error {
	n, set := l.connection(), l.decider.Limits().Set
	if n.store == nil || !slices.ContainsFunc(set.Rules, func(r *plan.Rule) bool { return r.Scope == rule.Global }) {
		return nil
	}
	return n.ready(ctx)
}
