// SPDX-License-Identifier: MIT

package track_test

import (
	"github.com/diana-limiter/diana/internal/track"

	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/source"
)

// script is a Source in fake time. The test sets its document and its health.
type script struct {
	mu      sync.Mutex // guards the rest
	now     source.Document
	out     error         // why it is out of reach
	hangs   bool          // it does not answer
	lost    bool          // Wait does not return any more when there is a change
	changed chan struct{} // closed at the next change of any of these
	asked   []time.Time   // each Get
}

// newScript returns a script whose document is "first".
func newScript() *script {
	s := &script{changed: make(chan struct{})}
	s.set(func() { s.now = written("first") })
	return s
}

func written(text string) source.Document { return source.Document{Text: []byte(text), Exists: true} }

func (s *script) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if !s.lost {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *script) Get(ctx context.Context) (source.Document, error) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	hangs := s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return source.Document{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.out
}

func (s *script) Wait(ctx context.Context, d source.Document) error {
	for {
		s.mu.Lock()
		out, changed := s.out, s.changed
		same := string(d.Text) == string(s.now.Text) && d.Exists == s.now.Exists || s.lost
		s.mu.Unlock()
		if out != nil || !same {
			return out
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *script) Put(context.Context, []byte) error { return errors.New("not in this test") }
func (s *script) Close() error                      { return nil }

// follow follows a script until the end of the test. It writes the calls of the Follower into a list.
func follow(t *testing.T, s *script, seen source.Document, lost error) func() []string {
	var mu sync.Mutex
	var told []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		track.Follow(ctx, s, seen, lost, track.Follower{
			Changed: func(d source.Document) { note(fmt.Sprintf("%s %v", d.Text, d.Exists)) },
			Reached: func(err error) { note(fmt.Sprint(err)) },
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
}

var errRefused = errors.New("refused")

// Follow reports each document that differs, and when the centre goes out of reach and is back.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		told := follow(t, s, written("first"), nil)
		for _, step := range []struct {
			change func()
			want   []string
		}{
			{func() {}, nil},
			{func() { s.now.Version = "other" }, nil},
			{func() { s.now = written("second") }, []string{"second true"}},
			{func() { s.now = written("") }, []string{" true"}},
			{func() { s.now = source.Document{} }, []string{" false"}},
			{func() { s.out = errRefused }, []string{"refused"}},
			{func() { s.out = errors.New("refused again") }, nil},
			{func() { s.out = nil }, []string{"<nil>"}},
			{func() { s.out = errRefused }, []string{"refused"}},
			{func() { s.out, s.now = nil, written("third") }, []string{"<nil>", "third true"}},
			{func() { s.hangs, s.lost = true, true }, []string{"no answer within 4s: context deadline exceeded"}},
			{func() { s.hangs, s.lost, s.now = false, false, written("fourth") }, []string{"<nil>", "fourth true"}},
		} {
			before := len(told())
			s.set(step.change)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := told()[before:]; !slices.Equal(got, step.want) {
				t.Errorf("told %q, expected %q", got, step.want)
			}
		}
	})
}

// A follower that starts without the centre learns when it is back, and gets its document.
func TestFollowFromOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.out = errRefused
		told := follow(t, s, source.Document{}, errRefused)
		time.Sleep(time.Minute)
		s.set(func() { s.out = nil })
		time.Sleep(time.Minute)
		if got, want := told(), []string{"<nil>", "first true"}; !slices.Equal(got, want) {
			t.Errorf("told %q, expected %q", got, want)
		}
	})
}

// If a watch is lost silently, Follow notices a change within 33 s.
func TestFollowLooksAnyway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		told := follow(t, s, written("first"), nil)
		for i := range 20 {
			synctest.Wait()
			text := fmt.Sprint(i)
			s.set(func() { s.lost, s.now = true, written(text) })
			time.Sleep(33 * time.Second)
			synctest.Wait()
			if got := told(); len(got) != i+1 {
				t.Fatalf("told %q", got)
			}
		}
	})
}

// However long a centre was out of reach, Follow pauses between its retries, and notices within
// ten seconds that the centre is back.
func TestFollowPauses(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"refuses": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, away := range []time.Duration{time.Second, 7 * time.Second, time.Minute, time.Hour} {
					s := newScript()
					told := follow(t, s, written("first"), nil)
					synctest.Wait()
					s.mu.Lock()
					s.asked = nil
					s.mu.Unlock()
					s.set(func() { s.out, s.hangs = errRefused, hangs })
					time.Sleep(away)
					s.set(func() { s.out, s.hangs, s.now = nil, false, written("second") })
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if got := told(); len(got) == 0 || got[len(got)-1] != "second true" {
						t.Errorf("ten seconds after %v: told %q", away, got)
					}
					s.mu.Lock()
					if most := int(away/(2500*time.Millisecond)) + 12; len(s.asked) > most {
						t.Errorf("asked %d times in %v, expected %d at the most", len(s.asked), away, most)
					}
					s.mu.Unlock()
				}
			})
		})
	}
}

// The retries of a hundred gateways that lose a centre at the same moment are spread, when the
// centre fails and when it is back.
func TestFollowHerd(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"refuses": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const gateways = 100
				s := newScript()
				var told []func() []string
				for range gateways {
					told = append(told, follow(t, s, written("first"), nil))
				}
				synctest.Wait()
				s.asked = nil // each gateway has asked once at its start
				s.set(func() { s.out, s.hangs = errRefused, hangs })
				time.Sleep(time.Minute)
				s.set(func() { s.out, s.hangs, s.now = nil, false, written("second") })
				back := time.Now()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for i, told := range told {
					if got, want := told(), 3; len(got) != want || got[2] != "second true" {
						t.Errorf("gateway %d was told %q", i, got)
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				// The first second has the most, because some gateways ask twice in it.
				if n := densest(s.asked, 100*time.Millisecond); n > 70 {
					t.Errorf("asked %d times within 100 ms", n)
				}
				late := slices.DeleteFunc(slices.Clone(s.asked), func(at time.Time) bool { return at.Before(back) })
				if n := densest(late, 100*time.Millisecond); n > 20 {
					t.Errorf("asked %d times within 100 ms after it was back", n)
				}
			})
		})
	}
}

// densest returns the largest number of times that lie within a span.
func densest(times []time.Time, span time.Duration) int {
	most := 0
	for i, at := range times { // in order
		n, _ := slices.BinarySearchFunc(times, at.Add(span), time.Time.Compare)
		most = max(most, n-i)
	}
	return most
}

// Follow returns as soon as its context ends, whatever it does.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			prepare func(*script)
			lost    error
		}{
			{func(*script) {}, nil},
			{func(s *script) { s.hangs = true }, nil},
			{func(s *script) { s.out = errRefused }, nil},
			{func(s *script) { s.out = errRefused }, errRefused},
		} {
			for after := range 20 {
				s := newScript()
				c.prepare(s)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(after)*300*time.Millisecond, cancel)
				begin := time.Now()
				track.Follow(ctx, s, source.Document{}, c.lost, track.Follower{
					Changed: func(source.Document) {}, Reached: func(error) {},
				})
				if took := time.Since(begin); took != time.Duration(after)*300*time.Millisecond {
					t.Errorf("it ended after %v, when it should after %v", took, time.Duration(after)*300*time.Millisecond)
				}
			}
		}
	})
}
