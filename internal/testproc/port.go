// SPDX-License-Identifier: MIT

package testproc

import "math/rand/v2"

// A server has a port from 11000 to 20999, and its peers the port that is PeerOffset higher. No
// system assigns these ports by itself, so a server that was down finds its port free.
const (
	firstPort  = 11000
	ports      = 10000
	PeerOffset = 10000 // as a Redis Cluster expects
)

// FreePort returns a port that is free, as is the port of its peers. Both are reserved until the
// test ends.
func FreePort(t TB) int {
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
