// SPDX-License-Identifier: MIT

package testproc

import (
	"math/rand/v2"
	"testing"
)

// Ports are taken from 11000 to 20999, and those for the server's peers, which lie
// PeerOffset above, thus from 21000 to 30999. No system hands these out by itself, so a
// server that is down finds its port again.
const (
	firstPort  = 11000
	ports      = 10000
	PeerOffset = 10000 // is where a Redis Cluster expects it
)

// FreePort returns a port that is free, with the one for its peers, and keeps it so for the
// test.
func FreePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		var release, releaseBus func()
		if release, err = reserve(port); err != nil {
			continue
		}
		if releaseBus, err = reserve(port + PeerOffset); err != nil {
			release()
			continue
		}
		t.Cleanup(func() {
			release()
			releaseBus()
		})
		return port
	}
	t.Fatalf("testproc: no free port: %v", err)
	return 0
}
