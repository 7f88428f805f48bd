// SPDX-License-Identifier: MIT

package storetest_test

import (
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/storetest"
)

// A suite uses the algorithms and scripts that it gets.
func TestSuiteOfOthers(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	own := limit.FixedWindow()
	own.Names = []string{"own"}
	own.New = func(l limit.Limit) (limit.Meter, error) {
		made.Add(1)
		return limit.FixedWindow().New(l)
	}
	suite := storetest.Suite{
		Algorithms: []limit.Algorithm{own},
		Scripts: fstest.MapFS{
			"README":          {Data: []byte("no script")},
			"some/own.replay": {Data: []byte("limit a  algo=own rpu=1 unit=10s\n1s  take 1  allowed\n1s  take 1  refused  retry=9s\n")},
		},
	}
	for name, run := range map[string]func(*testing.T){
		"run": func(t *testing.T) {
			suite.Run(t, func(*testing.T) (limit.Store, func() int64) {
				s := memstore.New(memstore.Options{})
				return s, s.Now
			})
		},
		"agree": func(t *testing.T) {
			suite.Agree(t, 1, 1000, memstore.New(memstore.Options{}), &replay.Meters{})
		},
		"replay": func(t *testing.T) {
			suite.Replay(t, func(*testing.T) limit.Store { return &replay.Meters{} })
		},
	} {
		before := made.Load()
		t.Run(name, run)
		if made.Load() == before {
			t.Errorf("%s: the algorithm was not tried", name)
		}
	}
}
