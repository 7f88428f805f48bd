// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// A request that needs a new connection waits for it no longer than for an answer.
func TestDialInTime(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and sends nothing
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

// A Redis that is not usable now is recognised as Redis, and the error says what is wrong.
func TestDialOfTroubledRedis(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"+PONG\r\n": true, "-NOAUTH Authentication required.\r\n": true, "-LOADING Redis is loading the dataset in memory\r\n": true,
		"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.\r\n": true,
		"-ERR unknown command\r\n": false, "-LOADING x\r\n+OK\r\n": false, "+OK\r\n": false,
	} {
		if isPong(said) != want {
			t.Errorf("%q: expected %v", said, want)
		}
	}
	r := redistest.Start(t, "--maxclients", "1")
	try := func() (net.Conn, error) {
		return dial(context.Background(), r.Addr(), &net.Dialer{Timeout: 20 * time.Second}, nil)
	}
	var first net.Conn
	testproc.Eventually(t, func() (ok bool) { // earlier connections may still be closing
		var err error
		first, err = try()
		return err == nil
	})
	defer first.Close()
	if _, err := try(); !errors.Is(err, errFull) {
		t.Errorf("one too many: %v", err)
	}
}
