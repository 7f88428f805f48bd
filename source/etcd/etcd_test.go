// SPDX-License-Identifier: MIT

package etcd_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/etcd"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"etcd://h/a": true, "etcd://h:1/a/b%20c": true, "etcd://[::1]:1/a": true,
		"etcd://h:1,i:2/a": true, "etcd://h,i,j:3/a": true,
		"etcd://h": false, "etcd://h/": false, "etcd:///a": false, "etcd://h,/a": false, "etcd://,h/a": false,
		"etcd://h/a?b": false, "etcd://h/a#b": false, "etcd:a": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if k := etcd.Kind(); k.Check(u) != want {
			t.Errorf("%s: expected %v of %s", text, want, k.Form)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	_, err := etcd.Kind().Open(source.Options{
		URL:   &url.URL{Scheme: "etcd", Host: "h", Path: "/a"},
		Token: func() (string, error) { return "", nil },
	})
	if err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("found %v", err)
	}
}

// If no endpoint can be reached, Get fails soon, with a plain error.
func TestNobody(t *testing.T) {
	t.Parallel()
	s, err := etcd.Kind().Open(source.Options{URL: &url.URL{Scheme: "etcd", Host: "127.0.0.1:1,127.0.0.1:2", Path: "/a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.Get(ctx)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("found %v", err)
	}
}
