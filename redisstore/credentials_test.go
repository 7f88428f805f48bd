// SPDX-License-Identifier: MIT

package redisstore

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The credentials are read for each new connection, so that it uses changed ones. If they cannot be read,
// Redis is unreachable for that reason.
func TestCredentials(t *testing.T) {
	t.Parallel()
	r := redistest.Options{Username: "me", Password: "secret", TLS: true}.Start(t)
	r.Must("ACL", "SETUSER", "gateway", "on", ">first", "~*", "+@all")
	var password, health atomic.Value
	absent := errors.New("the file is absent")
	password.Store("")
	s, err := Open(Options{
		URL: "rediss://" + r.Addr(), TLS: r.TLSConfig(),
		Credentials: func() (string, string, error) {
			if p := password.Load().(string); p != "" {
				return "gateway", p, nil
			}
			return "", "", absent
		},
		Changed: func(h Health) {
			if h.Reason != nil {
				health.Store(h)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, func() bool { return health.Load() != nil })
	if err := health.Load().(Health).Reason; !errors.Is(err, absent) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("out of reach because %v", err)
	}
	password.Store("first")
	testproc.Eventually(t, s.Up)
	password.Store("second")
	r.Must("ACL", "SETUSER", "gateway", "resetpass", ">second")
	r.Must("CLIENT", "KILL", "USER", "gateway")
	testproc.Eventually(t, func() bool { return strings.Contains(r.Must("CLIENT", "LIST").(string), "user=gateway") && s.Up() })
}
