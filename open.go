// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

// Open returns a Limiter with the configuration in a file, and follows the file, and the
// configuration centre that it may name: a change takes effect within two seconds. A
// change that is not a valid configuration is logged and does nothing else. The error of
// a bad file is config.Errors, which names every mistake. Open waits three seconds at most for
// a centre, and one second at most for Redis, see [Limiter.Ready].
func Open(file string) (*Limiter, error) { return Options{}.Open(file) }

// Open is like the function of that name, with these options.
func (o Options) Open(file string) (*Limiter, error) {
	o = o.filled()
	text, err := readFile(file, config.MaxSize)
	if err != nil {
		return nil, err
	}
	c, err := o.Vocabulary.Parse(file, text)
	if err != nil {
		return nil, err
	}
	l, err := o.New(c)
	if err != nil {
		return nil, err
	}
	l.awaitReloads("file")
	if l.file, err = watch(file, text, l.load); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	_ = l.Ready(ctx) // then on_error decides
	return l, nil
}

// Reload reads the file of Open again, now. An error means that nothing has changed.
func (l *Limiter) Reload() error {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	if file == nil {
		return nil
	}
	return file.read()
}

// load makes the text of the local file the settings, and its limits those in force unless
// a centre has others.
func (l *Limiter) load(file string, text []byte, err error) error {
	var c *config.Config
	if err == nil {
		c, err = l.options.Vocabulary.Parse(file, text)
	}
	if err == nil {
		err = l.settle(c)
	}
	if l.closing.Err() != nil { // nobody wants to know
		return err
	}
	l.countReload("file", err)
	l.mu.Lock()
	l.fileFailed = err != nil // not in countReload: a configuration centre can be a file too
	l.mu.Unlock()
	if err != nil {
		l.options.Logger.Error("configuration not changed", "source", file, "error", err)
	}
	return err
}

// settle puts a local configuration in force, with the Redis and the centre that it names. An
// error means that nothing has changed. It is called by one goroutine at a time.
func (l *Limiter) settle(local *config.Config) error {
	used := l.connection()
	redis, err := l.connect(local.Redis)
	if err != nil {
		return err
	}
	err = l.settleWith(local, redis)
	switch {
	case err == nil:
		redis.config = local.Redis // its timeout may be another one
	case redis != used:
		l.leave(redis)
	case redis.store != nil:
		redis.store.SetTimeout(redis.config.Timeout) // as before
	}
	return err
}

func (l *Limiter) settleWith(local *config.Config, redis *connection) error {
	old := l.centre
	same, err := old.of(local.Remote)
	if err != nil {
		return err
	}
	if same {
		l.changing.Lock()
		defer l.changing.Unlock()
		err = l.compose(local, old, redis)
		if err == nil && old != nil && old.pending != nil {
			l.takeOver(old, *old.pending)
		}
		return err
	}
	next, d, err := l.openCentre(local.Remote)
	if err != nil {
		return err
	}
	l.changing.Lock()
	if next != nil && (next.trouble != nil || next.refused != nil) && !next.inherit(old) {
		l.recall(next)
	}
	heard := next != nil && next.trouble == nil && next.refused == nil
	err = l.compose(local, next, redis)
	if err != nil && next != nil && next.document != nil {
		l.options.Logger.Error("configuration not changed", "source", next.where, "error", err)
		next.document, next.refused = nil, err
		if heard { // it is good by itself, but not here
			next.pending, heard = &d, false
		}
		err = l.compose(local, next, redis)
	}
	if err == nil {
		l.centre = next
		old.leave() // so that it changes nothing any more
		if heard {
			l.keep(next, d)
		}
	}
	l.changing.Unlock()
	if err != nil {
		next.close()
		return err
	}
	old.close()
	l.followCentre(next, d)
	return nil
}

// compose puts the configuration in force that a local one and the document of a centre
// make together: that document's limits win. l.changing is held.
func (l *Limiter) compose(local *config.Config, c *centre, redis *connection) error {
	next := local
	if c != nil && c.document != nil {
		next = config.Compose(local, c.document)
		next.Source = c.origin
	}
	var before *config.Config
	if a := l.active(); a != nil {
		before = a.config
	}
	if err := l.use(next, redis); err != nil {
		return err
	}
	l.base = local
	if before != nil {
		l.options.Logger.Info("configuration changed", "source", next.Source, "version", next.Version,
			"rules", len(l.decider.Limits().Set.Rules), "changes", diff.Configs(before, next))
	}
	for _, w := range next.Warnings {
		l.options.Logger.Warn("configuration", "warning", w.String())
	}
	if c != nil && c.document == nil && len(next.Limits) == 0 {
		l.options.Logger.Warn("nothing is limited: there is no document of the configuration centre, and the file has no limits", "centre", c.where)
	}
	return nil
}

// CentreStatus tells how things stand with the configuration centre.
type CentreStatus struct {
	URL     string    `json:"url"` // without what is secret
	Reached bool      `json:"reached"`
	Since   time.Time `json:"since"`             // of Reached
	Error   string    `json:"error,omitempty"`   // why it is not reached
	Refused string    `json:"refused,omitempty"` // why what it holds is not in force
}

// origin returns where the configuration in force comes from, and why. l.changing is held.
func (l *Limiter) origin() (why string, status *CentreStatus) {
	c := l.centre
	if c == nil {
		return "there is no configuration centre", nil
	}
	status = &CentreStatus{URL: c.where, Reached: c.reached, Since: c.since}
	if c.trouble != nil {
		status.Error = c.trouble.Error()
	}
	if c.refused != nil {
		status.Refused = c.refused.Error()
	}
	switch {
	case c.refused != nil && c.document != nil:
		why = "what the configuration centre holds now is not valid: its last good document serves"
	case c.refused != nil:
		why = "what the configuration centre holds is not valid: the local limits serve"
	case c.document == nil && !c.reached:
		why = "the configuration centre has not been reached: the local limits serve"
	case c.document == nil:
		why = "the configuration centre has no document: the local limits serve"
	case c.origin != c.where:
		why = "the configuration centre has not been reached: its snapshot serves"
	case !c.reached:
		why = "the configuration centre is out of reach: its last document serves"
	default:
		why = "the configuration centre wins over the local limits"
	}
	return why, status
}
