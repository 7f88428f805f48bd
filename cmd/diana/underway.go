// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net/http"
	"sync"
)

// underWay knows which requests are being answered, WebSockets included. The zero
// value is ready.
type underWay struct{ requests sync.WaitGroup }

// filter counts requests.
func (u *underWay) filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		defer u.requests.Done()
		next.ServeHTTP(w, r)
	})
}

// wait returns when no request is under way, or with ctx's error when ctx ends. No
// new one may come meanwhile.
func (u *underWay) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		u.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
