// SPDX-License-Identifier: MIT

// Package sourcetest checks that a kind of configuration centre keeps the promises of package
// source, in every state of the configuration centre.
//
// A test starts a real configuration centre, or a fake with the same protocol, and provides
// functions that change its document. Most checks use [track.Follow], as gateways do.
package sourcetest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
)

// Remote is a configuration centre that a test has started, without a document. The goroutine of
// the test calls its functions, one at a time. They return when they are done, and fail the test on
// an error. A nil function is something that this configuration centre cannot do; the states that
// need it are skipped.
type Remote struct {
	Kind    source.Kind
	Options source.Options // where the document is, and who may read and write it

	// Put and Delete change the document without the Source under test. If the configuration centre
	// has no network, they must also work while it is stopped.
	Put    func(text []byte)
	Delete func()

	// Stop stops the configuration centre. Start starts it again, at the same address and with the
	// same document.
	Stop, Start func()

	// Wipe restarts the configuration centre at the same address without any data. Revisions and
	// indexes start again too.
	Wipe func()

	// Compact makes the configuration centre forget earlier versions of the document.
	Compact func()

	// Largest is the size of the largest document of this configuration centre, in bytes. Zero: no
	// limit.
	Largest int

	// ReadOnly says that the Source cannot change the document.
	ReadOnly bool

	// Blind says that the configuration centre cannot compare before it changes the document, so
	// Swap must return an error.
	Blind bool
}

// patience is how long a test waits for something that must happen. It is long, because the
// machine can be busy with other tests.
const patience = time.Minute

// Run tests a kind in all states, several at the same time. start starts a configuration centre for
// each state, and stops it with t.Cleanup.
func Run(t *testing.T, start func(t *testing.T) Remote) {
	t.Helper()
	var running sync.WaitGroup
	// The tests wait most of the time, so more of them run than t.Parallel would allow.
	slots := make(chan struct{}, 12)
	for _, s := range states {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(s.name, func(t *testing.T) { s.play(newStage(t, start(t))) })
		})
	}
	running.Wait()
}

// stage is a configuration centre, the proxy in front of it, and the documents that it has had.
type stage struct {
	*testing.T
	Remote
	proxy   *redistest.Proxy // nil: the configuration centre has no network
	secrets []string
	put     []source.Document // in the order of their changes
}

func newStage(t *testing.T, c Remote) *stage {
	t.Helper()
	s := &stage{T: t, Remote: c, put: []source.Document{{}}}
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

// needNetwork skips a test that makes no sense without a network.
func (s *stage) needNetwork() {
	s.Helper()
	if s.proxy == nil {
		s.Skip("this centre has no network")
	}
}

// need skips a test that needs functions which the configuration centre does not have.
func (s *stage) need(what string, functions ...func()) {
	s.Helper()
	for _, f := range functions {
		if f == nil {
			s.Skipf("this centre cannot %s", what)
		}
	}
}

// open returns a Source of the configuration centre, which is closed at the end of the test.
func (s *stage) open() source.Source {
	s.Helper()
	addr := ""
	if s.proxy != nil {
		addr = s.proxy.Addr()
	}
	return s.openAt(addr)
}

// openAt returns a Source of a configuration centre at host:port, which may be something else.
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

// change puts a document into the configuration centre.
func (s *stage) change(text string) {
	s.put = append(s.put, source.Document{Text: []byte(text[:min(len(text), source.MaxSize+1)]), Exists: true})
	s.Put([]byte(text))
}

// remove deletes the document.
func (s *stage) remove() {
	s.put = append(s.put, source.Document{})
	s.Delete()
}

// away makes the configuration centre unavailable until back. It restarts a configuration centre
// that can be stopped. The document can be changed meanwhile.
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

// soon fails if do does not return within patience.
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

// discreet fails if an error contains a secret.
func (s *stage) discreet(err error) {
	s.Helper()
	for _, secret := range s.secrets {
		if secret != "" && strings.Contains(err.Error(), secret) {
			s.Errorf("the error contains the secret %q: %v", secret, err)
		}
	}
}

// get calls Get with a timeout.
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

// listen starts a server that calls serve with each connection. It returns its address.
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
				defer func() { _ = c.Close() }()            // the client may have closed it
				_ = c.SetDeadline(time.Now().Add(patience)) // so that the test ends
				serve(c)
			})
		}
	})
	s.Cleanup(func() {
		_ = l.Close() // the test has ended
		running.Wait()
	})
	return l.Addr().String()
}
