// SPDX-License-Identifier: MIT

package takeover

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Charges that the other process makes too late are refunded. A process that has ended fails all calls.
func TestLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, conn := net.Pipe()
		var refunds, notes, failed int
		serving := make(chan struct{})
		go func() {
			defer close(serving)
			c, document, err := NewCallee(conn)
			if err != nil || string(document[0]) != "text" {
				t.Error(document, err)
				return
			}
			c.Serve(func(_ context.Context, op Op, _ []limit.Charge) (bool, error) {
				if op == Refund {
					refunds++
				} else {
					time.Sleep(time.Second/4 + 1)
				}
				return true, nil
			}, func([]byte) { notes++ })
		}()
		caller := NewCaller(old, time.Second/4, func(error) { failed++ })
		if err := caller.Start(func() {}, []byte("text")); err != nil {
			t.Fatal(err)
		}
		if _, err := caller.Call(t.Context(), Take, make([]limit.Charge, 1)); !errors.Is(err, errLate) {
			t.Error(err)
		}
		if err := caller.Note(nil); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if refunds != 1 || notes != 1 || failed != 1 {
			t.Errorf("%d refunds, %d notes, %d failures, want 1 of each", refunds, notes, failed)
		}
		conn.Close()
		if _, err := caller.Call(t.Context(), Take, nil); err == nil || caller.Note(nil) == nil {
			t.Error("the other process has ended")
		}
		<-serving
	})
}
