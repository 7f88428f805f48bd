// SPDX-License-Identifier: MIT

package redistest_test

import (
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		redistest.Options
	}{
		{"open", redistest.Options{}},
		{"protected", redistest.Options{TLS: true, Username: "me", Password: "secret"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := tc.StartSentinel(t)
			if got := len(s.Addrs()); got != 3 {
				t.Errorf("%d addresses", got)
			}
			old := s.Master()
			old.Must("SET", "key", "value")
			redistest.WaitReplica(old)
			old.Kill()
			s.Sentinels[0].Kill() // two of three agree without it
			heir := s.WaitFailover(old)
			if heir == old || s.Master() != heir {
				t.Errorf("%s after %s", heir.Addr(), old.Addr())
			}
			if got := heir.Must("GET", "key"); got != "value" {
				t.Errorf("the key is %v", got)
			}
			heir.Must("SET", "more", "value")
			old.Restart()
			s.Sentinels[0].Restart()
			s.WaitReady()
			if s.Master() != heir || old.Info("replication")["role"] != "slave" {
				t.Error("the old master has come back as one")
			}
		})
	}
}
