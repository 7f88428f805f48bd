// SPDX-License-Identifier: MIT

package follow

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
	"github.com/diana-limiter/diana/internal/track"
	"github.com/diana-limiter/diana/source"
)

// firstTimeout is how long the first question to a source may take.
const firstTimeout = 3 * time.Second

// remote is the remote configuration that the local file names, and what is known of it. The
// methods of a nil remote are those of a file that names none.
type remote struct {
	settings *config.Remote
	where    string // the URL without secrets
	kind     string // etcd, consul, ...
	source   source.Source
	roots    *x509.CertPool // that its certificate is checked by; nil: the system's
	first    source.Document

	cancel    context.CancelFunc // nil: it is not followed yet
	following sync.WaitGroup

	// The rest belongs to the goroutine of Follower.run, as soon as it is followed.

	document *config.Config // the last good one; nil: the limits of the file are active
	lost     error          // why the source is unavailable; nil: it is available
	since    time.Time      // of lost
	refused  error          // why the document that the source holds is not in force; nil: it is

	// pending is that document, if it is valid by itself and only Apply has rejected it. It is
	// tried again with the next local configuration.
	pending *source.Document
}

// isNamed reports whether settings name this remote configuration, with the same certificates.
// All files that settings name must be readable now.
func (r *remote) isNamed(settings *config.Remote) (bool, error) {
	if r == nil || settings == nil {
		return r == nil && settings == nil, nil
	}
	o, err := settings.Options()
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(r.settings, settings) && roots(o.TLS).Equal(r.roots), nil
}

// roots returns the authorities that a TLS configuration trusts; nil: the system's.
func roots(c *tls.Config) *x509.CertPool {
	if c == nil {
		return nil
	}
	return c.RootCAs
}

// inForce returns the document whose limits are in force, or nil.
func (r *remote) inForce() *config.Config {
	if r == nil {
		return nil
	}
	return r.document
}

// failed reports whether the source is unavailable, or holds what is not in force.
func (r *remote) failed() bool { return r != nil && (r.lost != nil || r.refused != nil) }

// inherit takes the document of the remote configuration before it, if that has the same URL
// and only other settings, such as another password.
func (r *remote) inherit(old *remote) bool {
	if old == nil || old.document == nil || r.where != old.where {
		return false
	}
	r.document = old.document
	return true
}

// close ends the following and closes the source.
func (r *remote) close() {
	if r == nil {
		return
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.following.Wait()
	_ = r.source.Close() // nothing can be done about it
}

// ask opens the source that settings name, and gets the document for the first time. A source that
// is unavailable, or holds a document that is not valid, is no error.
func (f *Follower) ask(settings *config.Remote) (*remote, error) {
	if settings == nil {
		return nil, nil
	}
	o, err := settings.Options()
	if err != nil {
		return nil, err
	}
	kind, s, err := f.options.Vocabulary.OpenSource(o)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	r := &remote{settings: settings, where: settings.Where(), kind: kind, source: s, roots: roots(o.TLS), since: f.options.Now()}
	r.first, r.lost = track.Get(f.ctx, s, firstTimeout)
	switch {
	case f.ctx.Err() != nil:
		r.close()
		return nil, f.ctx.Err()
	case r.lost != nil:
		f.countLost(r)
	case r.first.Exists:
		if r.document, r.refused = f.parseRemote(r.where, r.first.Text); r.refused != nil {
			f.reloads.count(r.kind, r.refused)
			f.logRejected(r.where, r.refused)
		}
	}
	return r, nil
}

// recall takes the document of the snapshot, if there is a valid one.
func (f *Follower) recall(r *remote) {
	file := r.settings.Snapshot
	if file == "" {
		return
	}
	text, err := readSnapshot(file, r.where)
	var document *config.Config
	if err == nil {
		document, err = f.parseRemote(file, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		f.reloads.count("snapshot", err)
	}
	if err != nil {
		f.options.Logger.Warn("there is no good snapshot of the configuration centre: the gateway uses the limits of the file", "reason", err)
		return
	}
	r.document = document
}

// followRemote starts to follow f.remote.
func (f *Follower) followRemote() {
	r := f.remote
	if r == nil {
		return
	}
	f.reloads.expect(r.kind)
	ctx, cancel := context.WithCancel(f.ctx)
	r.cancel = cancel
	lost := r.lost
	r.following.Go(func() {
		track.Follow(ctx, r.source, r.first, lost, track.Follower{
			Changed: func(d source.Document) {
				f.send(ctx, step{do: func() error { f.receive(r, d); return nil }})
			},
			Reached: func(err error) {
				f.send(ctx, step{do: func() error { f.reach(r, err); return nil }})
			},
		})
	})
}

// receive applies what the source of r holds now.
func (f *Follower) receive(r *remote, d source.Document) {
	r.pending = nil
	var document *config.Config
	var err error
	if d.Exists {
		document, err = f.parseRemote(r.where, d.Text)
	}
	if err == nil {
		if err = f.apply(f.local, document); err != nil {
			r.pending = &d
		}
	}
	if f.ctx.Err() != nil { // Apply may have been interrupted
		return
	}
	f.reloads.count(r.kind, err)
	r.refused = err
	if err != nil {
		f.logRejected(r.where, err)
		return
	}
	r.document = document
	f.keep(r, d)
}

// reach notes that the source of r is unavailable, or available again if err is nil.
func (f *Follower) reach(r *remote, err error) {
	r.lost, r.since = err, f.options.Now()
	if err != nil {
		f.countLost(r)
		return
	}
	f.options.Logger.Info("the configuration centre is within reach", "centre", r.where)
}

func (f *Follower) countLost(r *remote) {
	f.reloads.count(r.kind, r.lost)
	f.options.Logger.Warn("the configuration centre is out of reach", "centre", r.where, "reason", r.lost)
}

// keep writes the snapshot of what the source of r holds, or removes it if there is no
// document any more.
func (f *Follower) keep(r *remote, d source.Document) {
	file := r.settings.Snapshot
	if file == "" {
		return
	}
	var err error
	if d.Exists {
		err = writeSnapshot(file, r.where, d.Text)
	} else {
		err = removeSnapshot(file)
	}
	if err != nil {
		f.options.Logger.Error("the snapshot of the configuration centre could not be written", "error", err)
	}
}
