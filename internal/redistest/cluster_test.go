// SPDX-License-Identifier: MIT

package redistest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	if got := len(c.Addrs()); got != 6 {
		t.Errorf("%d addresses", got)
	}
	masters := map[*redistest.Server]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "{a}f"} {
		m := c.Master(key)
		m.Must("SET", key, "value")
		masters[m] = true
	}
	if len(masters) != 3 {
		t.Errorf("%d masters have keys", len(masters))
	}
	old := c.Master("a")
	_, err := c.Master("b").Do("GET", "a")
	if e := redistest.Error(""); !errors.As(err, &e) || !strings.HasPrefix(string(e), "MOVED ") || !strings.HasSuffix(string(e), old.Addr()) {
		t.Errorf("asking the wrong one: %v", err)
	}
	redistest.WaitReplica(old)

	old.Kill()
	heir := c.WaitFailover(old)
	if heir == old || heir != c.Peer(old) || c.Master("a") != heir {
		t.Errorf("%s after %s", heir.Addr(), old.Addr())
	}
	if got := heir.Must("GET", "a"); got != "value" {
		t.Errorf("a is %v", got)
	}
	old.Restart()
	c.WaitReady()
	if got := old.Info("replication")["role"]; got != "slave" {
		t.Errorf("the old master has come back as %q", got)
	}
}

func TestClusterProtected(t *testing.T) {
	t.Parallel()
	c := redistest.Options{TLS: true, Username: "me", Password: "secret"}.StartCluster(t, 1)
	m := c.Master("a")
	m.Must("SET", "a", "value")
	redistest.WaitReplica(m)
}
