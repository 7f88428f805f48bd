// SPDX-License-Identifier: MIT

//go:build unix && !solaris && !aix

package source

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockEvery is how often lock tries to get a lock that another program has.
const lockEvery = 20 * time.Millisecond

// lock waits for the lock on a file, which it creates. Nobody removes the file, because another
// program could have opened it already. The lock ends with the program, also after a crash.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() } // this ends the lock too
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			unlock()
			return nil, &os.PathError{Op: "lock", Path: name, Err: err}
		case !sleep(ctx, lockEvery):
			unlock()
			return nil, ctx.Err()
		}
	}
}
