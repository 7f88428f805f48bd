// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"net/http"
	"sync"
)

// inFlight counts the requests in flight, WebSockets included. The zero value is ready to use.
type inFlight struct{ requests sync.WaitGroup }

// filter counts requests.
func (f *inFlight) filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		defer f.requests.Done()
		next.ServeHTTP(w, r)
	})
}

// wait returns nil when no request is in flight, or ctx's error when ctx ends. No new request may
// arrive meanwhile.
func (f *inFlight) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		f.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
