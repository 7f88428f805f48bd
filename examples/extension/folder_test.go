// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/source"
)

// followed is a folder that is being followed, under fake time.
type followed struct {
	*testing.T
	path string

	reached bool // the folder could be read

	mu   sync.Mutex // guards said
	said []string   // since it was last asked
}

func follow(t *testing.T, path string) *followed {
	t.Helper()
	f := &followed{T: t, path: path, reached: true}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	s, err := folders().Open(source.Options{URL: &url.URL{Scheme: "dir", Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for seen := (source.Document{}); ctx.Err() == nil; {
			d, err := s.Get(ctx)
			if reached := err == nil; reached != f.reached && ctx.Err() == nil {
				f.reached = reached
				f.say("reached: %v", reached)
			}
			if err != nil {
				_ = source.Poll(ctx) // ctx ends the loop
				continue
			}
			if d.Exists != seen.Exists || string(d.Text) != string(seen.Text) {
				f.say("%v %s", d.Exists, d.Text)
			}
			seen = d
			_ = s.Wait(ctx, d) // Get finds the same error
		}
	}()
	return f
}

func (f *followed) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *followed) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// expect waits for two seconds, in which a change must be known, and compares.
func (f *followed) expect(want ...string) {
	f.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.said, want) {
		f.Errorf("it said %q, want %q", f.said, want)
	}
	f.said = nil
}

func TestFolderFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, t.TempDir())
		f.expect() // there was nothing, and there is nothing
		f.write("b.yaml", "b: 1\n")
		f.expect("true # \"b.yaml\"\n---\nb: 1\n")
		f.write("a.yml", "a: 1")
		f.expect("true # \"a.yml\"\n---\na: 1\n# \"b.yaml\"\n---\nb: 1\n")
		f.write("a.yml", "a: 1") // the same again
		f.write("c.yaml.bak", "c")
		f.write(".d.yaml", "d")
		f.write("e.yaml", "# nothing\n\n")
		f.expect()
		f.write("b.yaml", "b: 2\n")
		f.write("b.yaml", "b: 3\n")
		f.expect("true # \"a.yml\"\n---\na: 1\n# \"b.yaml\"\n---\nb: 3\n")

		// One after another, but without a pause: no half of it is ever said.
		for i := range 8 {
			f.write("a.yml", fmt.Sprintln("a:", i))
			time.Sleep(lookEvery / 2)
			f.write("b.yaml", fmt.Sprintln("b:", i))
			time.Sleep(lookEvery / 2)
		}
		f.expect("true # \"a.yml\"\n---\na: 7\n# \"b.yaml\"\n---\nb: 7\n")

		for _, name := range []string{"a.yml", "b.yaml", "e.yaml"} {
			if err := os.Remove(filepath.Join(f.path, name)); err != nil {
				t.Fatal(err)
			}
		}
		f.expect("false ")
		if err := os.RemoveAll(f.path); err != nil {
			t.Fatal(err)
		}
		f.expect("reached: false")
		if err := os.Mkdir(f.path, 0o700); err != nil {
			t.Fatal(err)
		}
		f.write("a.yaml", "---\na: 1\n")
		time.Sleep(10 * time.Second)
		f.expect("reached: true", "true # \"a.yaml\"\n---\na: 1\n")
	})
}

// As a ConfigMap is mounted: the names stay, and what they lead to is exchanged as a whole.
func TestFolderOfLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, t.TempDir())
		version := func(n int) {
			old, fresh := filepath.Join(f.path, "..data"), filepath.Join(f.path, "..fresh")
			folder := filepath.Join(f.path, fmt.Sprint("..", n))
			err := errors.Join(
				os.Mkdir(folder, 0o700),
				os.WriteFile(filepath.Join(folder, "a.yaml"), fmt.Appendln(nil, "a:", n), 0o600),
				os.Symlink(folder, fresh),
				os.Rename(fresh, old))
			if err != nil {
				t.Fatal(err)
			}
		}
		version(1)
		if err := os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(f.path, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		f.expect("true # \"a.yaml\"\n---\na: 1\n")
		version(2)
		f.expect("true # \"a.yaml\"\n---\na: 2\n")
	})
}

func TestFolderOfTrouble(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := folder(path)
	if err := os.Mkdir(filepath.Join(path, "a.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Get(t.Context()); err == nil || d.Exists {
		t.Errorf("a folder in place of a file: %v, %v, want an error", d, err)
	}
	if err := os.Remove(filepath.Join(path, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(strings.Repeat("# \na", source.MaxSize/6)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := s.read()
	if err != nil || len(d.Text) != source.MaxSize+1 {
		t.Errorf("too much: %d bytes, %v, want one more than may be", len(d.Text), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
	if err := s.Wait(ended, d); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if err := s.Put(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Put: %v", err)
	}
}

// The folder of the example is a configuration.
func TestFolderIsConfiguration(t *testing.T) {
	t.Parallel()
	d, err := folder("limits.d").read()
	if err != nil {
		t.Fatal(err)
	}
	c, err := vocabulary().ParseRemote("limits.d", d.Text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Vocabulary: vocabulary()}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var names []string
	for _, r := range l.Status().Rules {
		names = append(names, r.Name)
	}
	if want := []string{"/ ip TB 50/second", "quota", "codes", "POST /login ip CD 5/minute"}; !slices.Equal(names, want) {
		t.Errorf("rules %q, want %q", names, want)
	}
}

func TestFolderURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"dir:///etc/limits.d": true,
		"dir://etc/limits.d":  false, // a host
		"dir:limits.d":        false,
		"dir:///etc?x":        false,
	} {
		_, err := vocabulary().Parse("x", []byte("remote: {url: '"+text+"'}\n"))
		if (err == nil) != want {
			t.Errorf("%s: %v, want valid: %v", text, err, want)
		}
	}
}
