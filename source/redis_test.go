// SPDX-License-Identifier: MIT

package source_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
)

// Redis does not send a known text again, unless the user may not run scripts.
func TestRedisIsSentOnce(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	r.Must("ACL", "SETUSER", "plain", "on", ">hidden", "~diana*", "+@read", "-eval")
	proxy := redistest.StartProxy(t, r.Addr())
	o := source.Options{URL: parseURL(t, "redis://"+proxy.Addr()+"/0/diana")}
	plain := o
	plain.Credentials = who("plain", "hidden")
	const size = 100_000
	for name, c := range map[string]struct {
		o         source.Options
		times     int64
		commands  string
		forbidden string
	}{
		"scripts":    {o, 1, "eval", "strlen"},
		"no scripts": {plain, 5, "strlen", "eval"},
	} {
		r.Must("SET", "diana", strings.Repeat("x", size))
		r.Must("CONFIG", "RESETSTAT")
		src := open(t, source.Redis(), c.o)
		before := proxy.Traffic().Down
		for range 5 {
			d, err := src.Get(t.Context())
			must(t, err)
			if len(d.Text) != size {
				t.Errorf("%s: found %d bytes", name, len(d.Text))
			}
		}
		if sent := proxy.Traffic().Down - before; sent < c.times*size || sent > c.times*size+1000 {
			t.Errorf("%s: %d bytes were sent, expected the text %d times", name, sent, c.times)
		}
		if calls := r.Calls(); calls[c.commands] == 0 || calls[c.forbidden] > 0 {
			t.Errorf("%s: found calls %v", name, calls)
		}
		// A key that is absent, empty, too large or not a string, with scripts and without.
		r.Must("DEL", "diana")
		if d, err := src.Get(t.Context()); err != nil || d.Exists {
			t.Errorf("%s: found %+v, %v, expected none", name, d, err)
		}
		r.Must("SET", "diana", "")
		if d, err := src.Get(t.Context()); err != nil || !d.Exists || len(d.Text) > 0 {
			t.Errorf("%s: found %+v, %v, expected an empty one", name, d, err)
		}
		r.Must("SETRANGE", "diana", "5000000", "x")
		if d, err := src.Get(t.Context()); err != nil || len(d.Text) != source.MaxSize+1 {
			t.Errorf("%s: found %d bytes, %v", name, len(d.Text), err)
		}
		r.Must("DEL", "diana")
		r.Must("RPUSH", "diana", "x")
		if d, err := src.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: found %+v, %v, expected WRONGTYPE", name, d, err)
		}
	}
}

// The credentials are read for each connection.
func TestRedisCredentials(t *testing.T) {
	t.Parallel()
	r := redistest.Options{Password: "hidden-second"}.Start(t)
	r.Must("SET", "diana", "text")
	absent := errors.New("the file is absent")
	var password string
	var failure error
	src := open(t, source.Redis(), source.Options{
		URL:         parseURL(t, "redis://"+r.Addr()+"/0/diana"),
		Credentials: func() (string, string, error) { return "", password, failure },
	})
	for _, c := range []struct {
		password string
		failure  error
		want     string // part of the error
	}{
		{"hidden-first", nil, "the username and the password were refused: WRONGPASS"},
		{"", absent, "the file is absent"},
		{"hidden-second", nil, ""},
	} {
		password, failure = c.password, c.failure
		d, err := src.Get(t.Context())
		switch {
		case c.want == "" && (err != nil || string(d.Text) != "text"):
			t.Errorf("found %+v, %v", d, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")):
			t.Errorf("found %v, expected %q", err, c.want)
		}
	}
	without := open(t, source.Redis(), source.Options{URL: parseURL(t, "redis://"+r.Addr()+"/0/diana")})
	if _, err := without.Get(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("found %v, expected NOAUTH", err)
	}
}

// A server that is not Redis causes an error, whatever it sends.
func TestRedisIsAnother(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"+OK POP3\r\n", strings.Repeat("+OK\r\n", 1000), ":1\r\n", ":9\r\n", "$9223372036854775807\r\n", "$-2\r\n", "*1000000000\r\n",
		"$1048578\r\n", "$5\r\nab", "$x\r\n", "\r\n", "\n", "-\n", strings.Repeat("x", 10_000), "%1\r\n", "-ERR unknown command 'AUTH', with args: 'hidden'\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1000)) // the answer is the same for each command
				_, _ = c.Write([]byte(answer))
				_ = c.Close()
			}
		}()
		for _, o := range []source.Options{{}, {Credentials: who("", "hidden")}} {
			o.URL = parseURL(t, "redis://"+l.Addr().String()+"/0/diana")
			if d, err := open(t, source.Redis(), o).Get(t.Context()); err == nil || strings.Contains(err.Error(), "hidden") && o.Credentials != nil {
				t.Errorf("%.40q: found %+v, %v, expected an error", answer, d, err)
			}
		}
		must(t, l.Close())
		<-done
	}
}

// A user without permission for scripts swaps by a transaction.
func TestRedisSwapWithoutScripts(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	r.Must("ACL", "SETUSER", "plain", "on", ">hidden", "~diana*", "+@read", "+set", "+@transaction", "-eval")
	o := source.Options{URL: parseURL(t, r.URL()+"/0/diana"), Credentials: who("plain", "hidden")}
	type swapper interface {
		Swap(ctx context.Context, old source.Document, text []byte) (bool, error)
	}
	first, second := open(t, source.Redis(), o), open(t, source.Redis(), o)
	var old source.Document
	for round := range 100 {
		var swapped [2]bool
		var running sync.WaitGroup
		for i, src := range []source.Source{first, second} {
			running.Go(func() {
				var err error
				swapped[i], err = src.(swapper).Swap(t.Context(), old, []byte{byte(round), byte(i)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		if swapped[0] == swapped[1] {
			t.Fatalf("round %d: found %v, expected one of two", round, swapped)
		}
		d, err := first.Get(t.Context())
		must(t, err)
		if want := []byte{byte(round), 0}; swapped[0] != bytes.Equal(d.Text, want) {
			t.Fatalf("round %d: found %v after %v", round, d.Text, swapped)
		}
		old = d
	}
	r.Must("DEL", "diana")
	if swapped, err := first.(swapper).Swap(t.Context(), old, nil); swapped || err != nil {
		t.Errorf("a deleted document: found %v, %v", swapped, err)
	}
}
