// SPDX-License-Identifier: MIT

// Package follow keeps a configuration up to date. It reads the local file, the remote
// configuration that the file may name, and the snapshot of the remote configuration. It
// hands each configuration that results to one callback.
//
// A configuration takes a straight way:
//
//	source -> parse -> compose -> Options.Apply
//
// One goroutine owns everything that is known of the sources, so no lock is needed. Each
// source has a goroutine of its own, which waits for changes and sends them to the owner:
//
//	watch (local file) ---.
//	track.Follow (remote) +--> run --> Apply
//	Reload ---------------'      '----> Status
//
// A document that cannot be applied changes nothing: the last good one stays in force.
package follow

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
)

// Options say what a Follower follows, and who gets the results. All fields are required.
type Options struct {
	File       string // the local configuration
	Vocabulary config.Vocabulary

	// Apply puts a configuration in force. If it returns an error, the configuration that
	// was in force before must still be. It is called by one goroutine at a time.
	Apply func(*config.Config) error

	Logger *slog.Logger
	Now    func() time.Time // for Status
}

// Follower follows a local file and the remote configuration that it names. Its methods
// are safe for concurrent use.
type Follower struct {
	options Options
	status  atomic.Pointer[Status]
	steps   chan step
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    chan struct{} // closed when run has returned

	// The rest belongs to the goroutine of run.

	file       watched
	fileFailed bool           // the file was not valid, or could not be read
	local      *config.Config // of the file; in force, perhaps with other limits
	remote     *remote        // nil: the file names none
	reloads    reloads
}

// step is something that run does.
type step struct {
	do     func() error
	result chan<- error // gets the error of do; nil: nobody waits for it
}

// errClosed is the error of a Reload after Close.
var errClosed = errors.New("the configuration is no longer followed")

// Start reads the file and the remote configuration that it names, applies the result, and
// follows both until Close. It waits for the remote configuration for three seconds at most;
// then the snapshot or the limits of the file serve. The error is that of reading the file,
// config.Errors, or that of Apply.
func Start(o Options) (*Follower, error) {
	text, err := readFile(o.File, bounds.MaxFile)
	if err != nil {
		return nil, err
	}
	file, err := openFile(o.File)
	if err != nil {
		return nil, err
	}
	f := &Follower{
		options: o, steps: make(chan step), done: make(chan struct{}),
		file:    watched{name: o.File, source: file},
		reloads: reloads{now: o.Now, last: o.Now(), counts: map[Reload]int64{}},
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	if err := f.use(text); err != nil {
		f.stop()
		return nil, err
	}
	f.reloads.expect(fileSource)
	f.publish()
	f.watch(text, nil)
	go f.run()
	return f, nil
}

// Reload reads the local file now, and applies it even if it has not changed. An error means
// that nothing has changed.
func (f *Follower) Reload() error {
	result := make(chan error, 1)
	if !f.send(f.ctx, step{f.reload, result}) {
		return errClosed
	}
	return <-result
}

// Close ends the following. It does not wait for a source that does not answer.
func (f *Follower) Close() {
	f.stop()
	<-f.done
}

// Status returns the state after the last step. It takes no lock. The result must not be
// changed.
func (f *Follower) Status() *Status { return f.status.Load() }

// publish makes the state visible to Status.
func (f *Follower) publish() {
	f.status.Store(&Status{
		Reason:  f.remote.reason(),
		Remote:  f.remote.status(),
		Valid:   !f.fileFailed && !f.remote.failed(),
		Loaded:  f.reloads.last,
		Reloads: maps.Clone(f.reloads.counts),
	})
}

// run takes one step after another until Close.
func (f *Follower) run() {
	defer close(f.done)
	for {
		select {
		case s := <-f.steps:
			err := s.do()
			f.publish()
			if s.result != nil {
				s.result <- err
			}
		case <-f.ctx.Done():
			f.file.end()
			f.remote.close()
			return
		}
	}
}

// send hands a step to run. It reports false if ctx ends first.
func (f *Follower) send(ctx context.Context, s step) bool {
	select {
	case f.steps <- s:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch loads the file whenever it is no longer as it was read last.
func (f *Follower) watch(text []byte, err error) {
	f.file.watch(f.ctx, text, err, func(ctx context.Context, text []byte, err error) {
		f.send(ctx, step{do: func() error { return f.load(text, err) }})
	})
}

// reload reads the local file and applies it. It restarts the goroutine that watches the
// file, because that goroutine must compare the file with the text that reload has read.
func (f *Follower) reload() error {
	f.file.end()
	text, err := readRegular(f.options.File, bounds.MaxFile)
	f.watch(text, err)
	return f.load(text, err)
}

// load applies the text of the local file, or reports why it could not be read.
func (f *Follower) load(text []byte, err error) error {
	if err == nil {
		err = f.use(text)
	}
	if f.ctx.Err() != nil { // nobody wants to know
		return err
	}
	f.fileFailed = err != nil
	f.reloads.count(fileSource, err)
	if err != nil {
		f.logRejected(f.options.File, err)
	}
	return err
}

// use applies the text of the local file, with the remote configuration that it names. An
// error means that nothing has changed.
func (f *Follower) use(text []byte) error {
	local, err := f.parse(f.options.File, text)
	if err != nil {
		return err
	}
	same, err := f.remote.isNamed(local.Remote)
	if err != nil {
		return err
	}
	if !same {
		return f.switchRemote(local)
	}
	if err := f.apply(local, f.remote.inForce()); err != nil {
		return err
	}
	f.local = local
	if f.remote != nil && f.remote.pending != nil {
		f.receive(f.remote, *f.remote.pending)
	}
	return nil
}

// switchRemote applies a local configuration that names another remote one than before.
func (f *Follower) switchRemote(local *config.Config) error {
	next, err := f.ask(local.Remote)
	if err != nil {
		return err
	}
	if next.failed() && !next.inherit(f.remote) {
		f.recall(next)
	}
	good := next != nil && !next.failed()
	err = f.apply(local, next.inForce())
	if err != nil && next.inForce() != nil {
		f.logRejected(next.where, err)
		next.document, next.refused = nil, err
		if good { // by itself, but not together with local
			next.pending, good = &next.first, false
		}
		err = f.apply(local, nil)
	}
	if err != nil {
		next.close()
		return err
	}
	f.remote.close()
	f.local, f.remote = local, next
	if good {
		f.keep(next, next.first)
	}
	f.followRemote()
	return nil
}

// apply composes a configuration of a local and a remote one, and has it put in force. The
// limits of the remote one win; nil: there is none.
func (f *Follower) apply(local, remote *config.Config) error {
	c := local
	if remote != nil {
		c = local.WithRemote(remote)
	}
	if err := f.options.Apply(c); err != nil {
		return err
	}
	if local.Remote != nil && remote == nil && len(local.Limits) == 0 {
		f.options.Logger.Warn("nothing is limited: the configuration centre has no document in force, and the file has no limits", "centre", local.Remote.Where())
	}
	return nil
}

// parse reads a local configuration.
func (f *Follower) parse(name string, text []byte) (*config.Config, error) {
	return f.options.Vocabulary.Parse(name, text)
}

// parseRemote reads a remote configuration.
func (f *Follower) parseRemote(name string, text []byte) (*config.Config, error) {
	return f.options.Vocabulary.ParseRemote(name, text)
}

func (f *Follower) logRejected(name string, err error) {
	if f.ctx.Err() != nil { // Close may be why
		return
	}
	f.options.Logger.Error("configuration not changed", "source", name, "error", err)
}
