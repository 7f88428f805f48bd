// SPDX-License-Identifier: MIT

package limit_test

import (
	"os"
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/storetest"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	storetest.Suite{}.Replay(t, func(*testing.T) limit.Store { return &replay.Meters{} })
}

// Adaptive concurrency is for stores in one process, so no Suite plays its script.
func TestReplayAdaptive(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/adaptive.replay")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	script, err := replay.Parse("adaptive.replay", f, append(limit.Algorithms(), limit.AdaptiveConcurrency()))
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []limit.Store{&replay.Meters{}, memstore.New(memstore.Options{})} {
		if err := script.Run(store); err != nil {
			t.Errorf("%T: %v", store, err)
		}
	}
}
