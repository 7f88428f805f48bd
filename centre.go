// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/source"
)

// firstLook is how long a start waits for the configuration centre.
const firstLook = 3 * time.Second

// centre is the configuration centre that a Limiter follows, and what it has said.
type centre struct {
	settings *config.Remote
	where    string // the URL without what is secret
	kind     string // etcd, consul, ...
	source   source.Source
	roots    *x509.CertPool // that its certificate is checked by; nil: the system's

	cancel    context.CancelFunc // nil before it is followed
	following sync.WaitGroup

	// Guarded by Limiter.changing, when it is followed.
	left     bool           // it is not the one of the configuration any more
	document *config.Config // the last good one; nil: none, the local limits serve
	origin   string         // where document comes from: where, or the snapshot
	reached  bool
	since    time.Time // of reached
	trouble  error     // why it is not reached
	refused  error     // why the document that the centre holds is not in force; nil: it is

	// pending is that document if it is good by itself, and something else was in its way.
	pending *source.Document
}

// of reports whether it is the centre that a configuration names, and is asked in the same
// way. What the configuration names must be readable now.
func (c *centre) of(settings *config.Remote) (bool, error) {
	if c == nil || settings == nil {
		return c == nil && settings == nil, nil
	}
	o, err := settings.Options()
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(c.settings, settings) && roots(o.TLS).Equal(c.roots), nil
}

// roots returns the authorities that a configuration of TLS trusts; nil: the system's.
func roots(c *tls.Config) *x509.CertPool {
	if c == nil {
		return nil
	}
	return c.RootCAs
}

// openCentre asks a centre for the first time. Nil: there is none.
func (l *Limiter) openCentre(settings *config.Remote) (c *centre, d source.Document, err error) {
	if settings == nil {
		return nil, d, nil
	}
	o, err := settings.Options()
	if err != nil {
		return nil, d, err
	}
	kind, s, err := source.Open(l.options.Vocabulary.Sources, o)
	if err != nil {
		return nil, d, fmt.Errorf("remote: %w", err)
	}
	c = &centre{settings: settings, where: settings.Where(), kind: kind, source: s, roots: roots(o.TLS), since: l.now()}
	if d, err = source.Get(l.closing, s, firstLook); l.closing.Err() != nil {
		_ = s.Close() // nothing can be done about it
		return nil, d, l.closing.Err()
	} else if err != nil {
		c.trouble = err
		l.countReload(c.kind, err)
		l.options.Logger.Warn("the configuration centre is out of reach", "centre", c.where, "reason", err)
		return c, d, nil
	}
	c.reached = true
	if err := l.read(c, d); err != nil {
		l.countReload(c.kind, err)
		l.options.Logger.Error("configuration not changed", "source", c.where, "error", err)
	}
	return c, d, nil
}

// followCentre begins to follow a centre, whose document was last seen as seen.
func (l *Limiter) followCentre(c *centre, seen source.Document) {
	if c == nil {
		return
	}
	l.awaitReloads(c.kind)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.following.Go(func() {
		source.Follow(ctx, c.source, seen, c.trouble, source.Follower{
			Changed: func(d source.Document) { l.documentChanged(c, d) },
			Reached: func(err error) { l.centreReached(c, err) },
		})
	})
}

// leave has nothing more that the centre says count. Limiter.changing is held.
func (c *centre) leave() {
	if c != nil {
		c.left = true
	}
}

// close ends the following. Limiter.changing must not be held, which what is just being
// heard may wait for.
func (c *centre) close() {
	if c == nil {
		return
	}
	if c.cancel != nil {
		c.cancel()
	}
	c.following.Wait()
	_ = c.source.Close() // nothing can be done about it
}

// read takes over a document.
func (l *Limiter) read(c *centre, d source.Document) error {
	if !d.Exists {
		c.document, c.origin, c.refused = nil, "", nil
		return nil
	}
	doc, err := l.options.Vocabulary.ParseRemote(c.where, d.Text)
	if err != nil {
		c.refused = err
		return err
	}
	c.document, c.origin, c.refused = doc, c.where, nil
	return nil
}

// inherit takes over the last good document of the centre before it, if that was asked for the
// same document and only in another way, as with another password.
func (c *centre) inherit(old *centre) bool {
	if old == nil || old.document == nil || c.where != old.where {
		return false
	}
	c.document, c.origin = old.document, old.origin
	return true
}

// recall takes over the document of the snapshot, if there is a good one.
func (l *Limiter) recall(c *centre) {
	file := c.settings.Snapshot
	if file == "" {
		return
	}
	text, err := readSnapshot(file, c.where)
	var doc *config.Config
	if err == nil {
		doc, err = l.options.Vocabulary.ParseRemote(file, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		l.countReload("snapshot", err)
	}
	if err != nil {
		l.options.Logger.Warn("there is no good snapshot of the configuration centre: the local limits serve", "reason", err)
		return
	}
	c.document, c.origin = doc, file
}

// keep writes the snapshot of what the centre holds, or removes that of what it no
// longer does.
func (l *Limiter) keep(c *centre, d source.Document) {
	file := c.settings.Snapshot
	if file == "" {
		return
	}
	var err error
	if d.Exists {
		err = writeSnapshot(file, c.where, d.Text)
	} else {
		err = removeSnapshot(file)
	}
	if err != nil {
		l.options.Logger.Error("the snapshot of the configuration centre could not be written", "error", err)
	}
}

// documentChanged puts a new document in force.
func (l *Limiter) documentChanged(c *centre, d source.Document) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if !c.left {
		l.takeOver(c, d)
	}
}

// takeOver is documentChanged. l.changing is held.
func (l *Limiter) takeOver(c *centre, d source.Document) {
	document, origin := c.document, c.origin
	c.pending = nil
	err := l.read(c, d)
	if err == nil {
		if err = l.compose(l.base, c, l.connection()); err != nil { // good by itself, but not here
			c.document, c.origin, c.refused, c.pending = document, origin, err, &d
		}
	}
	l.countReload(c.kind, err)
	if err != nil {
		l.options.Logger.Error("configuration not changed", "source", c.where, "error", err)
		return
	}
	l.keep(c, d)
}

// centreReached notes that the centre can no longer be asked, or can again.
func (l *Limiter) centreReached(c *centre, err error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	c.reached, c.trouble, c.since = err == nil, err, l.now()
	if err != nil {
		l.countReload(c.kind, err)
		l.options.Logger.Warn("the configuration centre is out of reach", "centre", c.where, "reason", err)
	} else {
		l.options.Logger.Info("the configuration centre is within reach", "centre", c.where)
	}
}
