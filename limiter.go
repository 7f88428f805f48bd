// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/refusals"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// Limiter decides whether requests may proceed, by the rules of the configuration in force. It is
// safe for concurrent use. Close ends it.
type Limiter struct {
	options Options
	local   *memstore.Store
	decider *decide.Decider
	redis   *redisLink

	handovers handovers
	rejected  respond.Rejected
	bodies    respond.Bodies
	readBody  decide.BodyReader // of bodies; a field, because a method value allocates
	left      respond.Left
	closing   context.Context // ends with Close
	end       context.CancelFunc

	file     string           // of Open; empty: none
	follower *follow.Follower // nil: the program gives the configurations

	applying sync.Mutex // one change of configuration at a time, which may wait for Redis
	close    sync.Once
}

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
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
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
			l, err = newLimiter(o, c)
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
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	l, err := newLimiter(o, c)
	if err != nil {
		return nil, err
	}
	l.warnOfRemote(c)
	return l, nil
}

var errNoConfig = errors.New("diana: the configuration is nil, expected one of config.Parse or of the program")

// newLimiter returns a Limiter with a configuration. o is filled.
func newLimiter(o Options, c *config.Config) (*Limiter, error) {
	if c == nil {
		return nil, errNoConfig
	}
	c = c.Filled(o.Vocabulary)
	l := &Limiter{options: o, local: memstore.New(memstore.Options{MaxKeys: c.MaxKeys, Clock: o.Now})}
	l.readBody = l.bodies.Read
	l.closing, l.end = context.WithCancel(context.Background())
	l.redis = newRedisLink(o, l.local)
	d := decide.Options{Local: l.local, Logger: o.Logger, Frozen: o.Now != nil, MeasureBegin: o.MeasureBegin, Failed: l.redis.countError}
	if o.OnDone != nil && o.Now == nil {
		d.Ordered = o.InOrder
		if d.Ordered == nil {
			d.Ordered = func() bool { return true }
		}
	}
	if o.OnRefusal != nil {
		d.Refused = func(r refusals.Refusal) { o.OnRefusal(Refusal(r)) }
	}
	l.decider = decide.New(d)
	l.redis.decider = l.decider
	l.handovers.decider = l.decider
	if err := l.apply(c); err != nil {
		l.redis.end()
		return nil, err
	}
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
	if c == nil {
		return errNoConfig
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

// apply puts a configuration in force, with the connection to the Redis that it names. An error means
// that nothing has changed.
func (l *Limiter) apply(c *config.Config) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	c = c.Filled(l.options.Vocabulary)
	next, err := compile(c, l.active(), l.options, l.local)
	if err != nil {
		return err
	}
	redis, err := l.redis.connect(c.Redis)
	if err != nil {
		return err
	}
	before := l.active()
	if err := l.swap(next, redis); err != nil {
		l.redis.abandon(redis)
		return err
	}
	redis.config = c.Redis // its timeout may be another one
	if before != nil {
		before.retire()
		if l.options.OnChange != nil {
			l.options.OnChange(before.config, c)
		} else {
			l.options.Logger.Info("configuration changed", "source", c.Source, "version", c.Version,
				"rules", len(next.set.Rules), "changes", diff.Configs(before.config, c))
		}
	}
	for _, w := range c.Warnings {
		l.options.Logger.Warn("configuration", "warning", w.String())
	}
	return nil
}

// swap puts a compiled configuration in force, with a connection to Redis, or changes nothing.
// Counters that mean the same keep their states.
func (l *Limiter) swap(next *active, n *connection) error {
	if err := next.bind(); err != nil {
		return err
	}
	err := l.redis.use(n, func(r decide.Redis) error {
		p := decide.Plan{Set: next.set, MaxKeys: next.config.MaxKeys, Stores: l.options.Stores, Credentials: next.credentials, Attached: next}
		return l.decider.Use(p, r, next.since)
	})
	if err != nil {
		next.retire()
	}
	return err
}

// active returns what is attached to the limits in force, or nil before there are any.
func (l *Limiter) active() *active {
	limits := l.decider.Limits()
	if limits == nil {
		return nil
	}
	return limits.Attached.(*active)
}

// Ready waits until the limits can be kept: until Redis has answered and the gateways there
// were counted, if there are global rules. The error is ctx's if that ends first. Until then
// requests are evaluated without Redis, see Decision.Degraded. [Open] has waited for it, for
// a second at most.
func (l *Limiter) Ready(ctx context.Context) error {
	n, set := l.redis.inUse(), l.decider.Limits().Set
	if n.store == nil || l.options.Stores[string(rule.Global)] != nil || !slices.ContainsFunc(set.Rules, func(r *plan.Rule) bool { return r.Scope == rule.Global }) {
		return nil
	}
	return n.ready(ctx)
}

// Flush waits until Redis has received what was charged without it, while it was unavailable, and until the process
// ends whose counters this Limiter has taken over. The error is ctx's
// if that ends first. Call it before [Limiter.Close], which waits for a second at most.
func (l *Limiter) Flush(ctx context.Context) error {
	if err := l.handovers.wait(ctx); err != nil {
		return err
	}
	if n := l.redis.inUse(); n.store != nil {
		return n.store.Flush(ctx)
	}
	return nil
}

// Close ends the following of the configuration, and the connections to Redis. Requests can still
// be evaluated, but the configuration can no longer change. Charges that Redis does not receive are logged, with
// their sum by rule. A second Close waits for the first, and does nothing.
func (l *Limiter) Close() error {
	l.close.Do(func() {
		l.end()
		l.redis.end() // so that no change waits for Redis any more
		if l.follower != nil {
			l.follower.Close()
		}
		l.applying.Lock() // an Update that is running ends first
		l.redis.close()
		l.applying.Unlock()
		l.redis.wait()
		l.handovers.close()
		l.decider.Close()
	})
	return nil
}

// Config returns the configuration in force. It is shared, and must not be changed.
func (l *Limiter) Config() *config.Config { return l.active().config }

// Status returns the state of the Limiter.
func (l *Limiter) Status() Status { return newStatus(l) }

// Reloads returns how many configurations became active, or did not, by source and result. Each
// pair that is possible is in the map from the start, so that the first reload is an increase. A
// Limiter that follows no file has none.
func (l *Limiter) Reloads() map[Reload]int64 {
	reloads := map[Reload]int64{}
	if l.follower != nil {
		for r, n := range l.follower.Status().Reloads {
			reloads[Reload(r)] = n
		}
	}
	return reloads
}

// RedisErrors returns how many calls to Redis have failed, by their kind.
func (l *Limiter) RedisErrors() map[string]int64 { return l.redis.errorCounts() }
