// SPDX-License-Identifier: MIT

package limit_test

import (
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/storetest"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	storetest.Suite{}.Replay(t, func(*testing.T) limit.Store { return &replay.Meters{} })
}
