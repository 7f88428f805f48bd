// SPDX-License-Identifier: MIT

package redistest

import (
	"math/rand/v2"
	"testing"
)

// Ports are taken from 11000 to 20999, and the ports of the Cluster's bus, which lie
// busOffset above, thus from 21000 to 30999. No system hands these out by itself, so a
// server that is down finds its port again.
const (
	firstPort = 11000
	ports     = 10000
	busOffset = 10000
)

// freePort returns a port that is free, with its bus port, and keeps it so for the
// test.
func freePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		var release, releaseBus func()
		if release, err = reserve(port); err != nil {
			continue
		}
		if releaseBus, err = reserve(port + busOffset); err != nil {
			release()
			continue
		}
		t.Cleanup(func() {
			release()
			releaseBus()
		})
		return port
	}
	t.Fatalf("redistest: no free port: %v", err)
	return 0
}
