// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"
	"time"
)

// inFlight counts calls, for a goroutine that waits until none is in flight. Unlike with a
// sync.WaitGroup, calls can begin meanwhile.
type inFlight struct {
	mu   sync.Mutex
	n    int
	none []chan struct{} // closed when n is 0
}

func (u *inFlight) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *inFlight) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n > 0 {
		return
	}
	for _, c := range u.none {
		close(c)
	}
	u.none = nil
}

// wait returns when no call is left, or when most gets a value.
func (u *inFlight) wait(most <-chan time.Time) {
	u.mu.Lock()
	none := make(chan struct{})
	if u.n == 0 {
		close(none)
	} else {
		u.none = append(u.none, none)
	}
	u.mu.Unlock()
	select {
	case <-none:
	case <-most:
	}
}
