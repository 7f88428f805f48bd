// SPDX-License-Identifier: MIT

package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/track"
	"github.com/diana-limiter/diana/source"
)

// shortly is the timeout of the first Get in the states where the configuration centre does not
// answer.
const shortly = 500 * time.Millisecond

// states are the states of a configuration centre, and what a Source must do in them.
var states = []struct {
	name string
	play func(*stage)
}{
	{"absent at start", func(s *stage) {
		f := follow(s, patience)
		f.seesNone()
		s.change("first")
		f.sees("first")
	}},
	{"out of reach at start", func(s *stage) {
		s.change("first")
		s.away()
		f := follow(s, patience)
		f.loses()
		s.back()
		f.finds()
		f.sees("first")
	}},
	{"hung at start", func(s *stage) {
		s.needNetwork()
		s.change("first")
		s.proxy.Freeze()
		if _, err := s.get(s.open(), shortly); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("found %v, expected a timeout", err)
		}
		f := follow(s, shortly)
		f.loses()
		s.proxy.Resume()
		f.finds()
		f.sees("first")
	}},
	{"changed and emptied", func(s *stage) {
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		s.change("second")
		f.sees("second")
		s.change("")
		f.sees("")
		s.change("third")
		f.sees("third")
	}},
	{"deleted and put again", func(s *stage) {
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		s.remove()
		f.seesNone()
		s.change("first")
		f.sees("first")
		s.change("")
		f.sees("")
		s.remove()
		f.seesNone()
	}},
	{"1000 changes in a row", func(s *stage) {
		const last = 1000
		text := func(i int) string { return strings.Repeat(fmt.Sprintf("change %d\n", i), 50) }
		s.change(text(0))
		f := follow(s, patience)
		f.sees(text(0))
		for i := range last {
			s.change(text(i + 1))
		}
		f.sees(text(last))
	}},
	{"large", func(s *stage) {
		sized := func(n int) string {
			if s.Largest > 0 {
				n = min(n, s.Largest)
			}
			text := strings.Repeat("# 0123456789 0123456789 0123456789 0123456789 0123456789 012345\n", n/64+1)
			return text[:n]
		}
		s.change(sized(source.MaxSize))
		f := follow(s, patience)
		f.sees(sized(source.MaxSize))
		if s.Largest == 0 || s.Largest > source.MaxSize {
			s.change(sized(5_000_000))
			f.awaits("a document that is too large", func(e event) bool {
				return e.document != nil && len(e.document.Text) == source.MaxSize+1
			})
			f.seen = f.seen[:len(f.seen)-1] // a configuration centre may deliver other bytes of it
		}
		s.change("small")
		f.sees("small")
	}},
	{"bytes that are not text", func(s *stage) {
		text := make([]byte, 3000)
		for i := range text {
			text[i] = byte(i)
		}
		s.change(string(text))
		f := follow(s, patience)
		f.sees(string(text))
	}},
	{"back with the same", func(s *stage) {
		f := leaves(s)
		s.back()
		f.finds()
		s.change("third")
		f.sees("third")
		if len(f.seen) != 3 {
			s.Errorf("an unchanged document was reported: %d documents seen", len(f.seen))
		}
	}},
	{"back with newer", func(s *stage) {
		f := leaves(s)
		s.change("third")
		s.back()
		f.sees("third")
	}},
	{"back with older", func(s *stage) {
		f := leaves(s)
		s.change("first")
		s.back()
		f.sees("first")
	}},
	{"back without", func(s *stage) {
		f := leaves(s)
		s.remove()
		s.back()
		f.seesNone()
	}},
	{"stopped and started", func(s *stage) {
		s.need("be stopped", s.Stop, s.Start)
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		for _, text := range []string{"second", "third"} {
			s.Stop()
			f.loses()
			s.Start()
			f.finds()
			s.change(text)
			f.sees(text)
		}
	}},
	{"frozen and thawed", func(s *stage) {
		s.needNetwork()
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		s.proxy.Freeze()
		f.loses()
		s.change("second")
		s.proxy.Resume()
		f.finds()
		f.sees("second")
	}},
	{"wiped", func(s *stage) {
		s.need("be wiped", s.Wipe)
		for i := range 20 {
			s.change(fmt.Sprintf("before %d", i))
		}
		f := follow(s, patience)
		f.sees("before 19")
		s.put = append(s.put, source.Document{})
		s.Wipe()
		f.seesNone()
		s.change("after")
		f.sees("after")
	}},
	{"wiped and filled while out of reach", func(s *stage) {
		s.need("be wiped", s.Wipe)
		for i := range 20 {
			s.change(fmt.Sprintf("before %d", i))
		}
		f := leaves(s)
		s.Wipe()
		s.change("after")
		s.back()
		f.sees("after")
		s.change("after that")
		f.sees("after that")
	}},
	{"history forgotten", func(s *stage) {
		s.need("forget its history", s.Compact)
		s.change("first")
		src := s.open()
		old, err := s.get(src, patience)
		s.fine(err)
		f := follow(s, patience)
		f.sees("first")
		s.away()
		f.loses()
		for i := range 20 {
			s.change(fmt.Sprintf("after %d", i))
		}
		s.Compact()
		s.back()
		f.sees("after 19")
		// The first Wait may fail on a closed connection.
		for range 100 {
			if err = src.Wait(s.Context(), old); err == nil {
				break
			}
		}
		s.fine(err)
		d, err := s.get(src, patience)
		s.fine(err)
		if string(d.Text) != "after 19" {
			s.Errorf("found %q", d.Text)
		}
	}},
	{"connection lost silently", func(s *stage) {
		s.needNetwork()
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		s.proxy.Lose()
		s.change("second")
		f.sees("second")
		s.change("third")
		s.proxy.Lose()
		f.sees("third")
	}},
	{"slow", func(s *stage) {
		s.needNetwork()
		s.proxy.SetLatency(shortly)
		s.change("first")
		f := follow(s, patience)
		f.sees("first")
		s.change("second")
		f.sees("second")
	}},
	{"something else at its address", func(s *stage) {
		s.needNetwork()
		for what, serve := range map[string]func(net.Conn){
			"nothing": func(c net.Conn) {},
			"silence": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
			"garbage": func(c net.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(strings.Repeat("\x00\xff garbage\r\n", 1000)))
				_, _ = io.Copy(io.Discard, c)
			},
			"a web server": func(c net.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte("HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n"))
			},
			"an endless answer": func(c net.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n$1000\r\n..."))
				_, _ = io.Copy(io.Discard, c)
			},
		} {
			if d, err := s.get(s.openAt(s.listen(serve)), 2*time.Second); err == nil {
				s.Errorf("%s was taken for the centre: %+v", what, d)
			}
		}
	}},
	{"canceled", func(s *stage) {
		s.change("first")
		src := s.open()
		d, err := s.get(src, patience)
		s.fine(err)
		ended, end := context.WithCancel(s.Context())
		time.AfterFunc(100*time.Millisecond, end)
		s.soon("Wait", func() {
			for err = nil; err == nil; err = src.Wait(ended, d) {
				continue
			}
		})
		if !errors.Is(err, context.Canceled) {
			s.Errorf("Wait: found %v, expected that it is canceled", err)
		}
		_, err = src.Get(ended)
		for what, err := range map[string]error{"Get": err, "Wait": src.Wait(ended, d), "Put": src.Put(ended, nil)} {
			if !errors.Is(err, context.Canceled) {
				s.Errorf("%s: found %v, expected that it is canceled", what, err)
			}
		}
		again, err := s.get(src, patience)
		s.fine(err)
		if !same(d, again) {
			s.Errorf("found %q after calls that were canceled, before %q", again.Text, d.Text)
		}
	}},
	// The caller of Run checks with goleak that no goroutine is left.
	{"closed at any moment", func(s *stage) {
		s.change("first")
		for i := range 60 {
			if s.proxy != nil {
				switch i {
				case 20:
					s.proxy.Freeze()
				case 40:
					s.proxy.Refuse()
				}
			}
			src := s.open()
			ctx, end := context.WithTimeout(s.Context(), rand.N(20*time.Millisecond))
			s.soon("Follow", func() {
				track.Follow(ctx, src, source.Document{}, nil, track.Follower{
					Changed: func(source.Document) {},
					Reached: func(error) {},
				})
			})
			end()
		}
	}},
	{"put", func(s *stage) {
		if s.ReadOnly {
			s.Skip("this source cannot change the document")
		}
		src := s.open()
		for _, text := range []string{"first", "", "\x00\xff\n", strings.Repeat("0123456789abcdef", 20_000), "last"} {
			s.put = append(s.put, source.Document{Text: []byte(text), Exists: true})
			s.fine(src.Put(s.Context(), []byte(text)))
			d, err := s.get(src, patience)
			s.fine(err)
			if !d.Exists || string(d.Text) != text {
				s.Errorf("put %q, found %q, exists: %v", name(text), name(string(d.Text)), d.Exists)
			}
		}
		f := follow(s, patience)
		f.sees("last")
		s.put = append(s.put, source.Document{Text: []byte("after"), Exists: true})
		s.fine(src.Put(s.Context(), []byte("after")))
		f.sees("after")
		if s.proxy == nil {
			return
		}
		s.proxy.Refuse()
		err := src.Put(s.Context(), []byte("refused"))
		if err == nil {
			s.Error("Put without a centre returned no error")
		} else {
			s.discreet(err)
		}
	}},
	{"swapped by two at once", swapAtOnce},
	{"swapped after changes", swapAfterChanges},
	{"swapped while followed", swapWhileFollowed},
}

// leaves returns a follower that has seen "first" and then "second", and has lost the configuration
// centre.
func leaves(s *stage) *follower {
	s.Helper()
	s.change("first")
	f := follow(s, patience)
	f.sees("first")
	s.change("second")
	f.sees("second")
	s.away()
	f.loses()
	return f
}
