// SPDX-License-Identifier: MIT

package handover

import (
	"net"
	"testing"
)

func TestListensAt(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "127.0.0.1:0", "localhost:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Log("skipped:", err) // a machine without IPv6
			continue
		}
		defer l.Close()
		if !listensAt(l.Addr(), address) {
			t.Errorf("%s is not at %s", l.Addr(), address)
		}
	}
}
