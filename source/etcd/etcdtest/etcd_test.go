// SPDX-License-Identifier: MIT

package etcdtest_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/etcd"
	"github.com/diana-limiter/diana/source/etcd/etcdtest"
)

// The credentials are read for each connection.
func TestCredentials(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, etcdtest.Options{Username: "gateway", Password: "hidden-second"})
	e.Put("diana", "text")
	absent := errors.New("the file is absent")
	var password string
	var failure error
	src := open(t, source.Options{
		URL:         parseURL(t, "etcd://"+e.Addr()+"/diana"),
		Credentials: func() (string, string, error) { return "gateway", password, failure },
	})
	for _, c := range []struct {
		password string
		failure  error
		want     string // part of the error
	}{
		{"hidden-first", nil, "authentication failed"},
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
	without := open(t, source.Options{URL: parseURL(t, "etcd://"+e.Addr()+"/diana")})
	if _, err := get(t, without); err == nil || !strings.Contains(err.Error(), "user name is empty") {
		t.Errorf("found %v", err)
	}
}

// One working endpoint of several is enough.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, etcdtest.Options{})
	e.Put("diana", "first")
	frozen, good := redistest.StartProxy(t, e.Addr()), redistest.StartProxy(t, e.Addr())
	frozen.Freeze()
	src := open(t, source.Options{URL: parseURL(t, "etcd://127.0.0.1:1,"+frozen.Addr()+","+good.Addr()+"/diana")})
	d, err := get(t, src)
	if err != nil || string(d.Text) != "first" {
		t.Fatalf("found %+v, %v", d, err)
	}
	e.Put("diana", "second")
	if err := src.Wait(t.Context(), d); err != nil {
		t.Errorf("found %v", err)
	}
	good.Refuse()
	if d, err = get(t, src); err == nil {
		t.Fatalf("found %+v with no endpoint", d)
	}
	frozen.Resume()
	if d, err = get(t, src); err != nil || string(d.Text) != "second" {
		t.Errorf("found %+v, %v", d, err)
	}
}

func open(t *testing.T, o source.Options) source.Source {
	t.Helper()
	s, err := etcd.Kind().Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, s source.Source) (source.Document, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return s.Get(ctx)
}

// parseURL returns the URL that text is.
func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
