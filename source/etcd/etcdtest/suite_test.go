// SPDX-License-Identifier: MIT

package etcdtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/etcd"
	"github.com/diana-limiter/diana/source/etcd/etcdtest"
	"github.com/diana-limiter/diana/source/sourcetest"
)

// Every Source of every test has been closed when the tests end, and nothing goes on.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEtcd(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, func(t *testing.T) sourcetest.Centre {
		return centre(t, etcdtest.Options{Username: "gateway", Password: "hidden-password"})
	})
}

func TestEtcdByTLS(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, func(t *testing.T) sourcetest.Centre { return centre(t, etcdtest.Options{TLS: true}) })
}

func centre(t *testing.T, o etcdtest.Options) sourcetest.Centre {
	t.Helper()
	const key = "diana/limits of all"
	e := etcdtest.Start(t, o)
	c := sourcetest.Centre{
		Kind: etcd.Kind(),
		Options: source.Options{
			URL: parseURL(t, "etcd://"+e.Addr()+"/diana/limits%20of%20all"),
			TLS: e.TLSConfig(),
		},
		Put:     func(text []byte) { e.Put(key, string(text)) },
		Delete:  func() { e.Delete(key) },
		Stop:    e.Stop,
		Start:   e.Start,
		Wipe:    e.Wipe,
		Compact: e.Compact,
	}
	if o.Password != "" {
		c.Options.Credentials = func() (string, string, error) { return o.Username, o.Password, nil }
	}
	return c
}
