// SPDX-License-Identifier: MIT

package redisstore

import (
	"testing"

	"go.uber.org/goleak"
)

// Every Store of every test has been closed when the tests end, and nothing goes on.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// rueidis sleeps for up to 5 s after a Cluster has changed, and does not look up when it is closed.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
	)
}
