// SPDX-License-Identifier: MIT

package redisstore

import (
	"testing"

	"go.uber.org/goleak"
)

// Every test closes its stores, and no goroutine is left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// rueidis sleeps for up to 5 s after a Cluster has changed, and ignores Close meanwhile.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
	)
}
