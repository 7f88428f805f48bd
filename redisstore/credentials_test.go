// SPDX-License-Identifier: MIT

package redisstore

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
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

// leastRights are the rights that docs/redis.md lists for the default prefix.
var leastRights = []string{
	"~diana:*", "-@all", "+ping", "+evalsha", "+eval", "+time", "+get", "+set", "+setrange", "+del", "+pexpire",
	"+zadd", "+zcard", "+zrange", "+zrangebyscore", "+zrem", "+zremrangebyrank", "+zremrangebyscore", "+hget", "+hset", "+hvals",
}

// A user with the least rights can do all that a Store does, and nothing else.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	user := append([]string{"ACL", "SETUSER", "gateway", "on", ">secret"}, leastRights...)
	credentials := func() (string, string, error) { return "gateway", "secret", nil }
	test := func(t *testing.T, o Options, nodes []*redistest.Server, more ...string) {
		t.Helper()
		t.Parallel()
		before := slices.Contains(more, "-setrange")
		for _, n := range nodes {
			n.Must(slices.Concat(user, more)...)
		}
		o.Credentials = credentials
		d := newDecided(map[int64]minutes.Counts{0: {Allowed: 1}})
		s := d.reporting(t, o)
		d.want(t, s, map[int64]summed{0: {minutes.Counts{Allowed: 1}, 1}})
		c := s.at(t, limit.TokenBucket(), limit.Limit{N: 10, Unit: time.Hour})
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
		if ok, err := s.Take(t.Context(), 0, ch); !ok || err != nil {
			t.Fatal(ok, err)
		}
		s.Refund(ch)
		s.Debit(0, ch)
		if err := s.Peek(t.Context(), 0, ch); err != nil {
			t.Error(err)
		}
		if err := s.Reset(t.Context(), c, ch[0].Key); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			if log, _ := n.Must("ACL", "LOG").([]any); len(log) > 0 && !before {
				t.Errorf("%s refused: %v", n.Addr(), log[0])
			}
		}
	}
	t.Run("one server", func(t *testing.T) {
		r := redistest.Start(t)
		test(t, Options{URL: r.URL()}, []*redistest.Server{r})
	})
	t.Run("the rights of the release before", func(t *testing.T) {
		r := redistest.Start(t)
		test(t, Options{URL: r.URL()}, []*redistest.Server{r}, "-setrange")
	})
	t.Run("Sentinel", func(t *testing.T) {
		s := redistest.StartSentinel(t)
		test(t, Options{Addresses: s.Addrs(), Master: s.MasterName}, s.Nodes, "+role")
	})
	t.Run("Cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 2)
		test(t, Options{Addresses: c.Addrs()}, c.Nodes, "+cluster|slots", "+cluster|shards")
	})
}
