// SPDX-License-Identifier: MIT

package clientconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A client that takes no more bytes is cut off after the write timeout, or at most a tenth later. The moment counts
// at which it took the last ones, and no deadline that net/http has removed.
func TestWriteTimeoutIsOnTime(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	for name, removed := range map[string]time.Duration{"plain": 0, "after a handshake": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, client := net.Pipe()
				defer client.Close()
				c := &clientConn{Conn: server, write: timeout}
				if removed > 0 {
					_ = c.SetWriteDeadline(time.Now().Add(removed))
					_ = c.SetWriteDeadline(time.Time{})
				}
				failed := make(chan error)
				go func() {
					_, err := c.Write(bytes.Repeat([]byte{'x'}, 1000))
					failed <- err
				}()
				for range 3 { // a client that reads slowly
					time.Sleep(timeout * 52 / 100)
					if _, err := io.ReadFull(client, make([]byte, 100)); err != nil {
						t.Fatal(err)
					}
				}
				last := time.Now()
				if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the write ended with %v", err)
				}
				if took := time.Since(last); took < timeout || took > timeout*11/10 {
					t.Errorf("the client was cut off %v after its last byte, want %v", took, timeout)
				}
			})
		})
	}
}
