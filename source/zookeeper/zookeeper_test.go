// SPDX-License-Identifier: MIT

package zookeeper_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/zookeeper"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"zookeeper://h/a": true, "zookeeper://h:1/a/b%20c": true, "zookeeper://[::1]:1/a": true,
		"zookeeper://h:1,i:2/a": true, "zookeeper://h,i,j:3/chroot/a": true, "zookeeper://h/a..b/.c": true,
		"zookeeper://h": false, "zookeeper://h/": false, "zookeeper:///a": false, "zookeeper://h,/a": false,
		"zookeeper://,h/a": false, "zookeeper://h/a?b": false, "zookeeper://h/a#b": false, "zookeeper:a": false,
		"zookeeper://h/a/": false, "zookeeper://h//a": false, "zookeeper://h/a/../b": false,
		"zookeeper://h/./a": false, "zookeeper://h/a%00": false,
	} {
		if k := zookeeper.Kind(); k.Check(parseURL(t, text)) != want {
			t.Errorf("%s: expected %v of %s", text, want, k.Form)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	_, err := zookeeper.Kind().Open(source.Options{
		URL:   parseURL(t, "zookeeper://h/a"),
		Token: func() (string, error) { return "", nil },
	})
	if err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("found %v", err)
	}
}

// If no host can be reached, Get fails soon, with a plain error.
func TestNobody(t *testing.T) {
	t.Parallel()
	s := open(t, source.Options{URL: parseURL(t, "zookeeper://127.0.0.1:1,127.0.0.1:2/a")})
	_, err := get(t, s)
	if err == nil {
		t.Fatal("found no error")
	}
	failures := strings.Split(err.Error(), "; ")
	slices.Sort(failures) // the hosts are tried in random order
	if !slices.Equal(failures, []string{"127.0.0.1:1: connect: connection refused", "127.0.0.1:2: connect: connection refused"}) {
		t.Errorf("found %v", err)
	}
}

// An answer that ZooKeeper never gives is an error.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	good := append([]byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 16}, make([]byte, 17)...)
	synced := []byte{0, 0, 0, 21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, '/'}
	for name, answer := range map[string][]byte{
		"short session":     {0, 0, 0, 4, 0, 0, 0, 0},
		"no session":        append(slices.Clone(good[:12]), make([]byte, 29)...),
		"large session":     {0, 1, 0, 0},
		"short answer":      append(slices.Clone(good), 0, 0, 0, 4, 0, 0, 0, 1),
		"other number":      append(slices.Clone(good), 0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"negative size":     append(slices.Clone(good), 0xff, 0xff, 0xff, 0xff),
		"nothing more":      good,
		"text without end":  append(append(slices.Clone(good), synced...), 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff),
		"text without stat": append(append(slices.Clone(good), synced...), 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write(answer) // the client may close
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
			s := open(t, source.Options{URL: parseURL(t, "zookeeper://"+l.Addr().String()+"/a")})
			d, err := get(t, s)
			if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ZooKeeper") {
				t.Errorf("found %+v, %v", d, err)
			}
			must(t, l.Close())
			<-done
		})
	}
}

// The credentials are read for each connection. A wrong password, or none, is an error and not an
// absent document.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, options{username: "gateway", password: "hidden-second"})
	s.put("/diana", []byte("text"))
	absent := errors.New("the file is absent")
	var password string
	var failure error
	src := open(t, source.Options{
		URL:         parseURL(t, "zookeeper://"+s.addr()+"/diana"),
		Credentials: func() (string, string, error) { return "gateway", password, failure },
	})
	for _, c := range []struct {
		password string
		failure  error
		want     string // part of the error
	}{
		{"hidden-first", nil, "the node does not allow this"},
		{"", absent, "the file is absent"},
		{"hidden-second", nil, ""},
	} {
		password, failure = c.password, c.failure
		d, err := get(t, src)
		switch {
		case c.want == "" && (err != nil || string(d.Text) != "text"):
			t.Errorf("found %+v, %v", d, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")):
			t.Errorf("found %v, expected %q", err, c.want)
		}
	}
	without := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/diana")})
	if _, err := get(t, without); err == nil || !strings.Contains(err.Error(), "the node does not allow this") {
		t.Errorf("found %v", err)
	}
	if err := without.Put(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the node does not allow this") {
		t.Errorf("found %v", err)
	}
}

// Put gives all rights to the user of the Source, and without a user to everybody.
func TestPutOwns(t *testing.T) {
	t.Parallel()
	for _, o := range []options{{}, {username: "gateway", password: "hidden"}} {
		s := start(t, o)
		src := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/a/b/c"), Credentials: credentials(o)})
		must(t, src.Put(t.Context(), []byte("text")))
		for _, name := range []string{"/a", "/a/b", "/a/b/c"} {
			found, _, err := s.client.GetACL(name)
			if err != nil || !slices.Equal(found, s.acl()) {
				t.Errorf("%s: found %v, %v, expected %v", name, found, err, s.acl())
			}
		}
	}
}

// A document that ZooKeeper does not accept because of its size is an error that says so, and the
// document stays as it was.
func TestPutTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.put("/diana", []byte("text"))
	src := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/diana")})
	err := src.Put(t.Context(), make([]byte, source.MaxSize))
	if err == nil || !strings.Contains(err.Error(), "jute.maxbuffer") {
		t.Errorf("found %v", err)
	}
	if d, err := get(t, src); err != nil || string(d.Text) != "text" {
		t.Errorf("found %+v, %v", d, err)
	}
	must(t, src.Put(t.Context(), make([]byte, 1_000_000)))
}

// One working member of several is enough.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.put("/diana", []byte("first"))
	frozen, good := redistest.StartProxy(t, s.addr()), redistest.StartProxy(t, s.addr())
	frozen.Freeze()
	src := open(t, source.Options{URL: parseURL(t, "zookeeper://127.0.0.1:1,"+frozen.Addr()+","+good.Addr()+"/diana")})
	d, err := get(t, src)
	if err != nil || string(d.Text) != "first" {
		t.Fatalf("found %+v, %v", d, err)
	}
	s.put("/diana", []byte("second"))
	must(t, src.Wait(t.Context(), d))
	good.Refuse()
	if d, err = get(t, src); err == nil {
		t.Fatalf("found %+v with no member", d)
	}
	frozen.Resume()
	if d, err = get(t, src); err != nil || string(d.Text) != "second" {
		t.Errorf("found %+v, %v", d, err)
	}
}

// When the server has ended the session, Wait fails, and the next Get sets the watch again.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	s := start(t, options{brief: true})
	s.put("/diana", []byte("first"))
	src := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/diana")})
	d, err := get(t, src)
	must(t, err)
	must(t, testproc.Poll(testproc.Patience, func() error { // nothing sends pings now
		said, err := s.ask("cons")
		if strings.Contains(said, "sid=0x"+session(d)) {
			err = errors.New("the session has not expired")
		}
		return err
	}))
	if err := src.Wait(t.Context(), d); err == nil || !strings.Contains(err.Error(), "has closed the connection") {
		t.Errorf("found %v", err)
	}
	s.put("/diana", []byte("second"))
	again, err := get(t, src)
	if err != nil || string(again.Text) != "second" || session(again) == session(d) {
		t.Fatalf("found %+v, %v", again, err)
	}
	s.put("/diana", []byte("third"))
	must(t, src.Wait(t.Context(), again))
	if d, err = get(t, src); err != nil || string(d.Text) != "third" {
		t.Errorf("found %+v, %v", d, err)
	}
}

// Wait keeps its session alive, longer than a session without messages lasts.
func TestWaitKeepsSession(t *testing.T) {
	t.Parallel()
	s := start(t, options{brief: true})
	s.put("/diana", []byte("first"))
	src := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/diana")})
	d, err := get(t, src)
	must(t, err)
	written := make(chan error, 1)
	time.AfterFunc(9*time.Second, func() {
		_, err := s.client.Set("/diana", []byte("second"), -1)
		written <- err
	})
	must(t, src.Wait(t.Context(), d))
	must(t, <-written)
	again, err := get(t, src)
	if err != nil || string(again.Text) != "second" || session(again) != session(d) {
		t.Errorf("found %+v, %v, expected the session of %s", again, err, d.Version)
	}
}

// Close ends the session, which would otherwise stay until its timeout. So does a Wait that is
// canceled.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := start(t, options{long: true})
	for name, end := range map[string]func(source.Source, source.Document){
		"Close": func(src source.Source, _ source.Document) { must(t, src.Close()) },
		"Wait": func(src source.Source, d source.Document) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if err := src.Wait(ctx, d); !errors.Is(err, context.Canceled) {
				t.Errorf("found %v", err)
			}
		},
	} {
		src := open(t, source.Options{URL: parseURL(t, "zookeeper://"+s.addr()+"/diana")})
		d, err := get(t, src)
		must(t, err)
		if said, err := s.ask("dump"); err != nil || !strings.Contains(said, session(d)) {
			t.Errorf("found %s, %v, expected the session %s", said, err, session(d))
		}
		end(src, d)
		if err := testproc.Poll(testproc.Patience, func() error {
			said, err := s.ask("dump")
			if strings.Contains(said, session(d)) {
				err = errors.New("the session has not ended")
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// session returns the session that has read a document.
func session(d source.Document) string {
	id, _, _ := strings.Cut(d.Version, ".")
	return id
}

func credentials(o options) func() (string, string, error) {
	if o.username == "" {
		return nil
	}
	return func() (string, string, error) { return o.username, o.password, nil }
}

func open(t *testing.T, o source.Options) source.Source {
	t.Helper()
	s, err := zookeeper.Kind().Open(o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func get(t *testing.T, s source.Source) (source.Document, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return s.Get(ctx)
}

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	must(t, err)
	return u
}
