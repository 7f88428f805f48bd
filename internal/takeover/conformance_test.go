// SPDX-License-Identifier: MIT

package takeover_test

import (
	"net"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/storetest"
)

// relay is a Store that has handed over to another one.
type relay struct {
	*memstore.Store
	next *memstore.Store
}

func (r relay) Counters(name string, m limit.Meter) (any, error) {
	if _, err := r.next.Counters(name, m); err != nil {
		return nil, err
	}
	return r.Store.Counters(name, m)
}

// A Store that has handed over to another process keeps all promises of a Store.
func TestConformance(t *testing.T) {
	storetest.Suite{}.Run(t, func(t *testing.T) (limit.Store, func() int64) {
		r := relay{memstore.New(memstore.Options{}), memstore.New(memstore.Options{})}
		old, conn := net.Pipe()
		t.Cleanup(func() { old.Close() })
		go func() {
			c, document, err := takeover.NewCallee(conn)
			if err != nil {
				t.Error(err)
				return
			}
			p, _, err := r.next.TakeOver(document[0])
			if err != nil {
				t.Error(err)
				return
			}
			c.Serve(p.Call, nil)
		}()
		caller := takeover.NewCaller(old, 10*time.Second, func(err error) { t.Error("the old process no longer asks:", err) })
		if err := caller.Start(func() {}, r.HandOver(caller.Call)); err != nil {
			t.Fatal(err)
		}
		return r, r.next.Now
	})
}
