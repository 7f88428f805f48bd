// SPDX-License-Identifier: MIT

package sourcetest

import (
	"bytes"
	"context"
	"time"

	"github.com/diana-limiter/diana/internal/track"
	"github.com/diana-limiter/diana/source"
)

// follower follows the document like a gateway.
type follower struct {
	*stage
	events chan event
	seen   []source.Document
}

// event is one call of a function of track.Follower.
type event struct {
	document *source.Document // nil: it is about the centre
	err      error            // why it is out of reach; nil: it is back
}

// follow starts to follow the document like the program: it calls Get once, with a timeout of
// limit, and passes the result to Follow. At the end of the test, all documents that it has
// seen must have been put, in this order.
func (s *stage) follow(limit time.Duration) *follower {
	s.Helper()
	f := &follower{stage: s, events: make(chan event, 10000)}
	src := s.open()
	d, err := s.get(src, limit)
	if err == nil {
		f.events <- event{document: &d}
	} else {
		f.events <- event{err: err}
	}
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		track.Follow(ctx, src, d, err, track.Follower{
			Changed: func(d source.Document) { f.events <- event{document: &d} },
			Reached: func(err error) { f.events <- event{err: err} },
		})
	}()
	s.Cleanup(func() {
		cancel()
		s.soon("Follow", func() { <-done })
		for len(f.events) > 0 {
			f.note(<-f.events)
		}
		f.checkOrder()
	})
	return f
}

// note records an event.
func (f *follower) note(e event) {
	f.Helper()
	if e.err != nil {
		f.discreet(e.err)
	}
	if e.document != nil {
		f.seen = append(f.seen, *e.document)
	}
}

// awaits waits for an event of a kind.
func (f *follower) awaits(what string, is func(event) bool) {
	f.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case e := <-f.events:
			f.note(e)
			if is(e) {
				return
			}
		case <-limit.C:
			f.Fatalf("not seen: %s; documents seen before: %d", what, len(f.seen))
		}
	}
}

func (f *follower) sees(text string) {
	f.Helper()
	want := source.Document{Text: []byte(text), Exists: true}
	f.awaits("a text of "+name(text), func(e event) bool { return e.document != nil && same(*e.document, want) })
}

func (f *follower) seesNone() {
	f.Helper()
	f.awaits("that there is no document", func(e event) bool { return e.document != nil && !e.document.Exists })
}

func (f *follower) loses() {
	f.Helper()
	f.awaits("that the centre is out of reach", func(e event) bool { return e.document == nil && e.err != nil })
}

func (f *follower) finds() {
	f.Helper()
	f.awaits("that the centre is back", func(e event) bool { return e.document == nil && e.err == nil })
}

// checkOrder fails unless all documents that were seen had been put, in this order.
func (f *follower) checkOrder() {
	f.Helper()
	rest := f.put
	for i, d := range f.seen {
		for len(rest) > 0 && !same(rest[0], d) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			f.Errorf("seen as document %d of %d: %s, exists: %v, which was not put, or not then",
				i+1, len(f.seen), name(string(d.Text)), d.Exists)
			return
		}
	}
}

func same(a, b source.Document) bool { return a.Exists == b.Exists && bytes.Equal(a.Text, b.Text) }

// name returns the beginning of a text, for messages.
func name(text string) string {
	if len(text) > 40 {
		return text[:40] + "..."
	}
	return text
}
