// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"net"
	"testing"
	"time"
)

// A request that needs a new connection does not wait for it longer than for an answer.
func TestDialInTime(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it lets in, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = dial(ctx, l.Addr().String(), &net.Dialer{Timeout: time.Minute}, nil)
	if took := time.Since(begin); err == nil || took > 30*time.Second {
		t.Errorf("%v after %v, want an error after 20 ms", err, took)
	}
}
