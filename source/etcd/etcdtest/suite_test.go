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

// When the tests end, every Source is closed, and no goroutine still runs.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEtcd(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, func(t *testing.T) sourcetest.Remote {
		return centre(t, etcdtest.Options{Username: "gateway", Password: "hidden-password"})
	})
}

func TestEtcdByTLS(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, func(t *testing.T) sourcetest.Remote { return centre(t, etcdtest.Options{TLS: true}) })
}

func centre(t *testing.T, o etcdtest.Options) sourcetest.Remote {
	t.Helper()
	const key = "diana/limits of all"
	e := etcdtest.Start(t, o)
	c := sourcetest.Remote{
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
