// SPDX-License-Identifier: MIT

// Package sourcetest checks that a kind of configuration centre is what package source
// promises, in every state that a centre can be in.
//
// A test starts a real centre, or a fake of it that speaks the same protocol, and says how
// its document is changed. Everything is seen through [source.Follow], as gateways see it.
package sourcetest

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
)

// Centre is a configuration centre that a test has started, without a document. Its
// functions are called by the goroutine of the test, one at a time, and return when they
// have done what they say; if they cannot, they end the test. Those that are nil are what
// this centre cannot do; the states that need them are skipped.
type Centre struct {
	Kind    source.Kind
	Options source.Options // where the document is, and who may read and write it

	// Put and Delete change the document by other means than the Source that is tested.
	// A centre without a network can do so also while it is stopped.
	Put    func(text []byte)
	Delete func()

	// Stop ends the centre. Start starts it again, at the same address and with the same
	// document.
	Stop, Start func()

	// Wipe ends the centre and starts it again, at the same address, with nothing: it also
	// begins anew to count changes.
	Wipe func()

	// Compact has the centre forget what the document was before.
	Compact func()

	// Largest is how many bytes a document may have in this centre. Zero: all that are asked for.
	Largest int
}

// patience is how long something may take that must come. It is long, for machines that are
// busy with other tests.
const patience = time.Minute

// Run checks a kind in all states, each with a centre that start starts, several at the
// same time. The end of a state's test ends what start has started.
func Run(t *testing.T, start func(t *testing.T) Centre) {
	t.Helper()
	var running sync.WaitGroup
	// Most of the time they wait, so there are more than those that t.Parallel lets run.
	places := make(chan struct{}, 12)
	for _, s := range states {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			t.Run(s.name, func(t *testing.T) { s.play(newStage(t, start(t))) })
		})
	}
	running.Wait()
}

// stage is a centre, the way to it, and what was put there.
type stage struct {
	*testing.T
	Centre
	proxy   *redistest.Proxy // nil: there is no network between
	secrets []string
	put     []source.Document // all that have been there, one after another
}

func newStage(t *testing.T, c Centre) *stage {
	t.Helper()
	s := &stage{T: t, Centre: c, put: []source.Document{{}}}
	if s.Options.URL.Host != "" {
		s.proxy = redistest.StartProxy(t, s.Options.URL.Host)
	}
	ask := func(secret string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		s.secrets = append(s.secrets, secret)
	}
	if s.Options.Token != nil {
		ask(s.Options.Token())
	}
	if s.Options.Credentials != nil {
		_, password, err := s.Options.Credentials()
		ask(password, err)
	}
	for _, values := range s.Options.URL.Query() {
		s.secrets = append(s.secrets, values...)
	}
	return s
}

// needNetwork skips what makes no sense without.
func (s *stage) needNetwork() {
	s.Helper()
	if s.proxy == nil {
		s.Skip("there is no network between")
	}
}

// need skips what a centre cannot do.
func (s *stage) need(what string, functions ...func()) {
	s.Helper()
	for _, f := range functions {
		if f == nil {
			s.Skipf("this centre cannot %s", what)
		}
	}
}

// open returns a Source of the centre, which the end of the test closes.
func (s *stage) open() source.Source {
	s.Helper()
	addr := ""
	if s.proxy != nil {
		addr = s.proxy.Addr()
	}
	return s.openAt(addr)
}

// openAt returns a Source of what is said to be the centre, at host:port.
func (s *stage) openAt(addr string) source.Source {
	s.Helper()
	o := s.Options
	u := *o.URL
	u.Host = addr
	o.URL = &u
	if !s.Kind.Check(o.URL) {
		s.Fatalf("Check refuses a URL such as %s", s.Kind.Form)
	}
	src, err := s.Kind.Open(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.soon("Close", func() { s.fine(src.Close()) }) })
	return src
}

// change puts a document into the centre.
func (s *stage) change(text string) {
	s.put = append(s.put, source.Document{Text: []byte(text[:min(len(text), source.MaxSize+1)]), Exists: true})
	s.Put([]byte(text))
}

// remove deletes it.
func (s *stage) remove() {
	s.put = append(s.put, source.Document{})
	s.Delete()
}

// away puts the centre out of reach, until back. Meanwhile it has been started again, if it
// can, and can be changed.
func (s *stage) away() {
	s.Helper()
	if s.proxy == nil {
		s.need("be stopped", s.Stop, s.Start)
		s.Stop()
		return
	}
	s.proxy.Refuse()
	if s.Stop != nil {
		s.Stop()
		s.Start()
	}
}

func (s *stage) back() {
	s.Helper()
	if s.proxy == nil {
		s.Start()
		return
	}
	s.proxy.Resume()
}

// soon fails if something takes longer than anything may.
func (s *stage) soon(what string, do func()) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		s.Errorf("%s does not return", what)
	}
}

// fine fails if there is an error.
func (s *stage) fine(err error) {
	s.Helper()
	if err != nil {
		s.discreet(err)
		s.Errorf("found an error: %v", err)
	}
}

// discreet fails if an error tells a secret.
func (s *stage) discreet(err error) {
	s.Helper()
	for _, secret := range s.secrets {
		if secret != "" && strings.Contains(err.Error(), secret) {
			s.Errorf("the error tells the secret %q: %v", secret, err)
		}
	}
}

// get returns what a Source gives within a time.
func (s *stage) get(src source.Source, limit time.Duration) (d source.Document, err error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	s.soon("Get", func() { d, err = src.Get(ctx) })
	if err != nil {
		s.discreet(err)
	}
	return d, err
}

// listen starts a server that does the same to each connection. It returns its address.
func (s *stage) listen(serve func(net.Conn)) string {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()            // who asks does not mind
				_ = c.SetDeadline(time.Now().Add(patience)) // so that the test ends
				serve(c)
			})
		}
	})
	s.Cleanup(func() {
		_ = l.Close() // nobody asks any more
		running.Wait()
	})
	return l.Addr().String()
}

// URL returns the URL that text is, for the Options of a Centre.
func URL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
