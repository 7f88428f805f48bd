// SPDX-License-Identifier: MIT

package zookeeper_test

import (
	"path"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/sourcetest"
	"github.com/diana-limiter/diana/source/zookeeper"
)

// When the tests end, every Source is closed, and no goroutine still runs.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// restarts are the states that stop the server, and so have one of their own. The other states share
// one, because each server is a Java process; they still lose their connections.
var restarts = regexp.MustCompile("/(back_with_older|stopped|wiped)")

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	o := options{username: "gateway", password: "hidden-password", large: true}
	shared := start(t, o)
	sourcetest.Run(t, func(t *testing.T) sourcetest.Remote {
		if !restarts.MatchString(t.Name()) {
			return remote(t, shared.within(t))
		}
		s := start(t, o)
		c := remote(t, s)
		c.Stop, c.Start, c.Wipe = s.stop, s.run, s.wipe
		return c
	})
}

func TestZooKeeperByTLS(t *testing.T) {
	t.Parallel()
	shared := start(t, options{tls: true, large: true})
	sourcetest.Run(t, func(t *testing.T) sourcetest.Remote { return remote(t, shared.within(t)) })
}

// remote returns a document that no other test uses.
func remote(t *testing.T, s *server) sourcetest.Remote {
	t.Helper()
	place := "/diana/" + path.Base(t.Name())
	return sourcetest.Remote{
		Kind: zookeeper.Kind(),
		Options: source.Options{
			URL: parseURL(t, "zookeeper://"+s.addr()+place+"/limits%20of%20all"), TLS: s.tlsConfig(),
			Credentials: credentials(s.options),
		},
		Put:    func(text []byte) { s.put(place+"/limits of all", text) },
		Delete: func() { s.remove(place + "/limits of all") },
	}
}
