// SPDX-License-Identifier: MIT

package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/diana-limiter/diana/source"
)

// swapper is a Source with the method that package source describes.
type swapper interface {
	source.Source
	Swap(ctx context.Context, old source.Document, text []byte) (swapped bool, err error)
}

// swapper returns a Source with Swap. It skips the test if there can be none.
func (s *stage) swapper() swapper {
	s.Helper()
	src, ok := s.open().(swapper)
	if !ok || s.ReadOnly {
		s.Skip("this source cannot swap the document")
	}
	return src
}

// swap calls Swap, and fails unless it reports want.
func (s *stage) swap(src swapper, old source.Document, text string, want bool) {
	s.Helper()
	swapped, err := src.Swap(s.Context(), old, []byte(text))
	s.fine(err)
	if swapped != want {
		s.Errorf("Swap from %q to %q reports %v", name(string(old.Text)), name(text), swapped)
	}
	if swapped {
		s.put = append(s.put, source.Document{Text: []byte(text), Exists: true})
	}
}

// holds fails unless the document is want.
func (s *stage) holds(src source.Source, want source.Document) {
	s.Helper()
	d, err := s.get(src, patience)
	s.fine(err)
	if !same(d, want) {
		s.Errorf("found %q, exists: %v; expected %q, exists: %v", name(string(d.Text)), d.Exists, name(string(want.Text)), want.Exists)
	}
}

// swapAtOnce lets writers that know the same document swap it at the same moment. The first round
// begins without a document.
func swapAtOnce(s *stage) {
	writers := []swapper{s.swapper(), s.swapper(), s.swapper()}
	if s.Blind {
		s.Skip("this centre cannot compare")
	}
	for round := range 20 {
		var ready, done sync.WaitGroup
		ready.Add(len(writers))
		won := make([]bool, len(writers))
		text := func(i int) string { return fmt.Sprintf("round %d of writer %d", round, i) }
		for i, src := range writers {
			done.Go(func() {
				old, err := s.get(src, patience)
				s.fine(err)
				ready.Done()
				ready.Wait()
				won[i], err = src.Swap(s.Context(), old, []byte(text(i)))
				s.fine(err)
			})
		}
		done.Wait()
		winners := 0
		for i, is := range won {
			if is {
				winners++
				s.holds(writers[i], source.Document{Text: []byte(text(i)), Exists: true})
			}
		}
		if winners != 1 {
			s.Fatalf("round %d: %d writers have swapped the document", round, winners)
		}
	}
}

// swapAfterChanges swaps documents that are no longer there.
func swapAfterChanges(s *stage) {
	src := s.swapper()
	absent, empty := source.Document{}, source.Document{Exists: true}
	if s.Blind {
		s.change("first")
		old, err := s.get(src, patience)
		s.fine(err)
		if swapped, err := src.Swap(s.Context(), old, []byte("second")); swapped || !errors.Is(err, errors.ErrUnsupported) {
			s.Errorf("Swap reports %v, %v", swapped, err)
		}
		s.holds(src, old)
		return
	}
	s.swap(src, source.Document{Text: []byte("first"), Exists: true}, "second", false) // never was
	s.swap(src, empty, "second", false)
	s.holds(src, absent)

	s.change("")
	s.swap(src, absent, "second", false)
	s.holds(src, empty)
	s.swap(src, empty, "first", true)
	old, err := s.get(src, patience)
	s.fine(err)

	s.change("changed")
	s.swap(src, old, "second", false)
	s.change("first") // again
	s.swap(src, old, "second", true)
	s.swap(src, old, "third", false)

	old, err = s.get(src, patience)
	s.fine(err)
	s.remove()
	s.swap(src, old, "third", false)
	s.holds(src, absent)
	none, err := s.get(src, patience)
	s.fine(err)
	s.change("created")
	s.swap(src, none, "third", false)
	s.holds(src, source.Document{Text: []byte("created"), Exists: true})

	if s.Wipe != nil {
		old, err = s.get(src, patience)
		s.fine(err)
		s.Wipe()
		s.change("after")
		s.swap(s.swapper(), old, "third", false) // the connection of src is lost
	}
}

// swapWhileFollowed swaps documents of all sizes while a gateway follows them.
func swapWhileFollowed(s *stage) {
	src := s.swapper()
	if s.Blind {
		s.Skip("this centre cannot compare")
	}
	s.change("first")
	f := follow(s, patience)
	f.sees("first")
	large := strings.Repeat("0123456789abcdef", 40_000)
	for _, text := range []string{"\x00\xff\n", large, "", "last"} {
		old, err := s.get(src, patience)
		s.fine(err)
		s.swap(src, old, text, true)
		f.sees(text)
	}
	if s.proxy == nil {
		return
	}
	old, err := s.get(src, patience)
	s.fine(err)
	s.proxy.Refuse()
	swapped, err := src.Swap(s.Context(), old, []byte("refused"))
	if err == nil || swapped {
		s.Errorf("Swap without a centre reports %v, %v", swapped, err)
	} else {
		s.discreet(err)
	}
}
