// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"net"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// Each rival has one rule by the client's address and sets its fields, as its documentation
// shows.

func openHTTPRateHandler(next http.Handler) (middleware, error) {
	byAddress := func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}
	return middleware{"httprate, 1 rule by IP", "", rival, httprate.LimitBy(math.MaxInt32, time.Minute, byAddress)(next)}, nil
}

func openThrottledHandler(next http.Handler) (middleware, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return middleware{}, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(million), MaxBurst: million})
	if err != nil {
		return middleware{}, err
	}
	h := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return middleware{"throttled, 1 rule by IP", "", rival, h.RateLimit(next)}, nil
}

func openTollboothHandler(next http.Handler) (middleware, error) {
	limiter := tollbooth.NewLimiter(1_000*million, nil).SetIPLookups([]string{"RemoteAddr"})
	return middleware{"tollbooth, 1 rule by IP", "", rival, tollbooth.LimitHandler(limiter, next)}, nil
}
