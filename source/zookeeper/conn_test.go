// SPDX-License-Identifier: MIT

package zookeeper

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Without a change, wait sends pings and returns after the time that it was given. Without an
// answer to a ping it fails.
func TestWaitInTime(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() {
				defer theirs.Close()
				for {
					m := make([]byte, 12)
					if _, err := io.ReadFull(theirs, m); err != nil {
						return
					}
					if m[11] != byte(callPing) {
						t.Errorf("found %x", m)
					}
					if pong := sized(appendInt(appendLong(appendInt(nil, numberOfPing), 5), 0)); answers {
						_, _ = theirs.Write(pong) // read by wait
					}
				}
			}()
			c := &conn{Conn: ours, messages: bufio.NewReader(ours), askEvery: askEvery}
			if err := c.wait(t.Context(), 10*time.Minute); answers && err != nil || !answers && !errors.Is(err, errSilent) {
				t.Errorf("answers: %v, found %v", answers, err)
			}
		})
	}
}
