// SPDX-License-Identifier: MIT

package memstore_test

import (
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Suite{}.Run(t, func(*testing.T) (limit.Store, func() int64) {
		s := memstore.New(memstore.Options{})
		return s, s.Now
	})
	storetest.Suite{}.Replay(t, func(*testing.T) limit.Store { return memstore.New(memstore.Options{}) })
}
