// SPDX-License-Identifier: MIT

package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/source"
)

// memory is a configuration centre in memory.
type memory struct {
	mu      sync.Mutex // guards the rest
	texts   map[string]string
	down    error
	changed chan struct{} // closed by the next change
	open    int           // sources that are not closed
}

func newCentre() *memory { return &memory{texts: map[string]string{}, changed: make(chan struct{})} }

func (c *memory) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *memory) put(key, text string) { c.change(func() { c.texts[key] = text }) }

func (c *memory) kind() source.Kind {
	return source.Kind{Schemes: []string{"memory"}, Open: func(o source.Options) (source.Source, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open++
		return &document{c, o.URL.Path, c.changed}, nil
	}}
}

// document is a source.Source.
type document struct {
	centre *memory
	key    string
	seen   chan struct{} // the next change after Get
}

func (d *document) Get(context.Context) (source.Document, error) {
	d.centre.mu.Lock()
	defer d.centre.mu.Unlock()
	d.seen = d.centre.changed
	text, ok := d.centre.texts[d.key]
	return source.Document{Text: []byte(text), Exists: ok}, d.centre.down
}

func (d *document) Wait(ctx context.Context, _ source.Document) error {
	select {
	case <-d.seen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *document) Put(context.Context, []byte) error { return errors.ErrUnsupported }

func (d *document) Close() error {
	d.centre.mu.Lock()
	defer d.centre.mu.Unlock()
	d.centre.open--
	return nil
}

// followed is a Follower under test, and what it has applied.
type followed struct {
	*testing.T
	*follow.Follower
	*memory
	file   string
	reject func(*config.Config) error // nil: all is applied

	mu      sync.Mutex // guards the rest
	applied []string   // of each configuration, its source and its rules
}

// start follows a file with that text. prepare may be nil.
func start(t *testing.T, text string, prepare func(*followed)) *followed {
	t.Helper()
	f := &followed{T: t, memory: newCentre(), file: filepath.Join(t.TempDir(), "diana.yaml")}
	f.write(text)
	if prepare != nil {
		prepare(f)
	}
	v := config.DefaultVocabulary()
	v.Sources = []source.Kind{f.kind()}
	var err error
	f.Follower, err = follow.Start(follow.Options{
		File: f.file, Vocabulary: v, Apply: f.apply, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func (f *followed) write(text string) {
	f.Helper()
	if err := os.WriteFile(f.file, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *followed) apply(c *config.Config) error {
	if f.reject != nil {
		if err := f.reject(c); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, e := range c.Limits {
		for _, r := range e.Rules {
			names = append(names, r.Name)
		}
	}
	f.applied = append(f.applied, strings.Join(names, " "))
	return nil
}

// want checks what was applied so far, and why the last of it is in force.
func (f *followed) want(reason string, applied ...string) {
	f.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !reflect.DeepEqual(f.applied, applied) {
		f.Errorf("applied %q, want %q", f.applied, applied)
	}
	if got := f.Status().Reason; !strings.Contains(got, reason) {
		f.Errorf("the reason is %q, want %q", got, reason)
	}
}

// limits returns a configuration with one rule.
func limits(name string) string {
	return fmt.Sprintf("limits: [{url: /, rules: [{name: %s, rpu: 1}]}]\n", name)
}

const (
	remoteA = "remote: {url: 'memory://h/a'}\n"
	remoteB = "remote: {url: 'memory://h/b'}\n"
)

func TestRemoteWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, remoteA+limits("local"), func(f *followed) { f.put("/a", limits("first")) })
		f.want("wins over", "first")
		f.put("/a", limits("second"))
		f.want("wins over", "first", "second")
		f.put("/a", "nonsense")
		f.want("last good document", "first", "second")
		f.change(func() { delete(f.texts, "/a") })
		f.want("has no document", "first", "second", "local")
	})
}

// The source of a remote configuration that the file no longer names is closed, and its
// changes are not applied.
func TestRemoteIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, remoteA, func(f *followed) {
			f.put("/a", limits("a"))
			f.put("/b", limits("b"))
		})
		f.write(remoteB)
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
		f.put("/a", limits("late"))
		f.want("wins over", "a", "b")
		if f.open != 1 {
			t.Errorf("%d sources are open, want 1", f.open)
		}
		f.write(limits("local"))
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
		f.put("/b", limits("late"))
		f.want("no configuration centre", "a", "b", "local")
		if f.open != 0 {
			t.Errorf("%d sources are open, want none", f.open)
		}
	})
}

// A file that cannot be applied changes nothing: the remote configuration of before is still
// followed.
func TestRejectedFileChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejected := errors.New("rejected")
		f := start(t, remoteA, func(f *followed) {
			f.put("/a", limits("a"))
			f.put("/b", limits("b"))
			f.reject = func(c *config.Config) error {
				if c.Remote != nil && strings.HasSuffix(c.Remote.URL, "/b") {
					return rejected
				}
				return nil
			}
		})
		f.write(remoteB)
		if err := f.Reload(); !errors.Is(err, rejected) {
			t.Fatalf("Reload: %v, want %v", err, rejected)
		}
		if f.Status().Valid {
			t.Error("the rejected file counts as valid")
		}
		f.put("/a", limits("more"))
		f.want("wins over", "a", "more")
		if f.open != 1 {
			t.Errorf("%d sources are open, want 1", f.open)
		}
	})
}

// A document that is valid by itself, and that Apply has rejected, is tried again with the
// next local file.
func TestRejectedDocumentIsTriedAgain(t *testing.T) {
	for name, prepare := range map[string]func(*followed){
		"at the start": func(f *followed) { f.put("/a", limits("remote")) },
		"later":        func(*followed) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, remoteA+limits("local"), func(f *followed) {
					prepare(f)
					f.reject = func(c *config.Config) error {
						if c.Limits[0].Rules[0].Name == "remote" && c.MaxKeys == 1_000_000 {
							return errors.New("too many keys")
						}
						return nil
					}
				})
				f.put("/a", limits("remote"))
				f.want("local limits serve", "local")
				if got := f.Status().Remote.Refused; got != "too many keys" {
					t.Errorf("refused: %q", got)
				}
				f.write(remoteA + limits("other") + "max_keys: 5")
				if err := f.Reload(); err != nil {
					t.Fatal(err)
				}
				f.want("wins over", "local", "other", "remote")
			})
		})
	}
}

// A source that is down at the start is used as soon as it is back.
func TestRemoteIsDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, remoteA+limits("local"), func(f *followed) {
			f.put("/a", limits("remote"))
			f.down = errors.New("down")
		})
		f.want("has not been reached", "local")
		if s := f.Status(); s.Valid || s.Remote.Reached || s.Remote.Error != "down" {
			t.Errorf("%+v, %+v", s, s.Remote)
		}
		f.change(func() { f.down = nil })
		time.Sleep(10 * time.Second)
		f.want("wins over", "local", "remote")
		want := map[follow.Reload]int64{
			{"file", "ok"}: 0, {"file", "error"}: 0, {"memory", "ok"}: 1, {"memory", "error"}: 1,
		}
		if got := f.Status().Reloads; !maps.Equal(got, want) {
			t.Errorf("reloads: %v, want %v", got, want)
		}
	})
}

// A file that is gone counts as one error. When it is back, also unchanged, it counts as
// loaded.
func TestFileIsGoneAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, limits("local"), nil)
		if err := os.Remove(f.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := f.Status(); s.Valid || s.Reloads[follow.Reload{"file", "error"}] != 1 {
			t.Errorf("without the file: %+v", s)
		}
		f.want("", "local")
		f.write(limits("local"))
		time.Sleep(2 * time.Second)
		if s := f.Status(); !s.Valid || s.Reloads[follow.Reload{"file", "ok"}] != 1 {
			t.Errorf("the file is back: %+v", s)
		}
	})
}

// A Status does not change, and Reload has published the next one when it returns.
func TestStatusNeverChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, limits("local"), nil)
		before := f.Status()
		reloads := maps.Clone(before.Reloads)
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
		if f.Status() == before || !maps.Equal(before.Reloads, reloads) {
			t.Errorf("%+v is changed or not replaced", before)
		}
	})
}

func TestReloadAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, limits("local"), nil)
		f.Close()
		if err := f.Reload(); err == nil {
			t.Error("no error")
		}
		f.want("", "local")
	})
}

func TestStartErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejected := errors.New("rejected")
		c := newCentre()
		c.put("/a", limits("remote"))
		v := config.DefaultVocabulary()
		v.Sources = []source.Kind{c.kind()}
		file := filepath.Join(t.TempDir(), "diana.yaml")
		o := follow.Options{
			File: file, Vocabulary: v, Apply: func(*config.Config) error { return rejected },
			Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		}
		if _, err := follow.Start(o); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without a file: %v", err)
		}
		if err := os.WriteFile(file, []byte(remoteA), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := follow.Start(o); !errors.Is(err, rejected) {
			t.Errorf("rejected: %v", err)
		}
		if c.open != 0 {
			t.Errorf("%d sources are open, want none", c.open)
		}
	})
}

// A local file can be larger than a remote configuration. The Follower compares all of it, so it
// applies a change at the end, and applies an unchanged file once.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		padding := strings.Repeat("# comment\n", bounds.MaxConfig/10)
		f := start(t, padding+limits("a"), nil)
		time.Sleep(10 * time.Second)
		f.want("", "a")
		f.write(padding + limits("b"))
		time.Sleep(10 * time.Second)
		f.want("", "a", "b")
	})
}
