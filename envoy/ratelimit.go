// SPDX-License-Identifier: MIT

// Package envoy decides for Envoy over gRPC: [RateLimit] is its rate limit service, and [Authorization] its
// external authorization. It is a module of its own, because the types of Envoy's messages bring more than
// a hundred packages.
package envoy

import (
	"context"
	"errors"
	"fmt"

	"log/slog"

	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// RateLimitOptions configure a RateLimit.
type RateLimitOptions struct {
	// Paths are the files of envoyproxy/ratelimit, and directories of such files.
	Paths []string

	// Settings returns the settings that hold for the limits too, such as redis and max_keys. Its limits
	// do not matter. It is called now and then; a new result takes effect within a second.
	Settings func() *config.Config

	// ChargeAll charges a request to all its descriptors, also if one of them is over its limit, as
	// envoyproxy/ratelimit does. Otherwise such a request is charged to none.
	ChargeAll bool

	// Merge lets several files have the same domain.
	Merge bool

	// Logger gets a line for each change of the limits. Nil means slog.Default().
	Logger *slog.Logger

	// RedisObserved and OnRefusal are those of diana.Options.
	RedisObserved func(time.Duration)
	OnRefusal     func(diana.Refusal)

	// OnInvalid is called with the error of each request that is not valid. OnUnknown is called for each
	// request whose domain is in no file, and which is therefore allowed; near returns a domain of the files
	// with a similar name, or "". Several goroutines call them, and they must return soon. Nil means none.
	OnInvalid func(error)
	OnUnknown func(domain string, near func() string)
}

// RateLimit is the service envoy.service.ratelimit.v3.RateLimitService. It finds limits in the files of
// envoyproxy/ratelimit and counts them as Diana does: exactly, by any algorithm, and by shares while
// Redis is down. It is safe for concurrent use. Use OpenRateLimit, and Close at the end.
type RateLimit struct {
	rls.UnimplementedRateLimitServiceServer

	options RateLimitOptions
	limiter *diana.Limiter
	active  atomic.Pointer[active]
	brought sync.Map  // of *limit, by override
	pool    sync.Pool // of *question

	failed atomic.Bool // the files as they were last read are not in force

	mu        sync.Mutex     // guards changes of the limits, and the rest
	settings  *config.Config // in force
	overrides overrides
	tried     *config.Config // settings with which the files were last read
	version   version        // of the files as they were last read
	unread    string         // why they could not be read; empty: they could

	stop    chan struct{}
	stopped sync.WaitGroup
}

// redisPrefix is behind the prefix of the settings: the gateways of a Limiter and those of a RateLimit
// would count each other otherwise.
const redisPrefix = ":envoy"

// OpenRateLimit reads the files and connects to Redis. It returns when limits can be kept, or after a
// second. The error lists all mistakes of the files.
func OpenRateLimit(ctx context.Context, o RateLimitOptions) (*RateLimit, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	settings := o.Settings()
	s := &RateLimit{options: o, settings: settings, tried: settings, stop: make(chan struct{})}
	s.pool.New = func() any { return new(question) }
	files, version, err := s.read()
	if err != nil {
		return nil, err
	}
	s.version = version
	a, err := s.parse(files, s.settings)
	if err != nil {
		return nil, err
	}
	s.limiter, err = diana.Options{
		Logger: o.Logger, RedisObserved: o.RedisObserved, OnRefusal: o.OnRefusal,
		// For the limiter, a limit that a request brings is a change too. Reload logs the changes of the files.
		OnChange: func(_, _ *config.Config) {},
	}.New(s.compose(a, s.settings))
	if err != nil {
		return nil, err
	}
	s.active.Store(a)
	s.log(a)
	ready, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.limiter.Ready(ready) // if Redis does not answer, on_error decides
	s.stopped.Go(s.watch)
	return s, nil
}

// Limiter returns what counts the limits, for metrics. Only the RateLimit changes it.
func (s *RateLimit) Limiter() *diana.Limiter { return s.limiter }

// Status returns the state of the limits, as of a Limiter that follows the files. A rule is the limit of a
// descriptor, or one that requests bring.
func (s *RateLimit) Status() diana.Status {
	status := s.limiter.Status()
	c, since := &status.Config, s.active.Load().since
	c.Since, c.LastReloadSuccess, c.LastReloadSuccessful = since, since, !s.failed.Load()
	c.Reason = "the files of descriptors are valid"
	if !c.LastReloadSuccessful {
		c.Reason = "the files of descriptors are not valid, so earlier limits stay"
	}
	return status
}

// Close ends the watching of the files and the connection to Redis.
func (s *RateLimit) Close() error {
	close(s.stop)
	s.stopped.Wait()
	return s.limiter.Close()
}

// ShouldRateLimit decides about a request. The error is InvalidArgument for a request without a domain or
// descriptors, or with too many; then nothing is charged.
func (s *RateLimit) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	if err := check(r); err != nil {
		return nil, told(s.options.OnInvalid, err)
	}
	q := s.pool.Get().(*question)
	defer s.pool.Put(q)
	var err error
	for range mostTries {
		var answer *rls.RateLimitResponse
		if answer, err = s.decide(ctx, r, q); !errors.Is(err, errReplaced) {
			return answer, err
		}
	}
	return nil, status.Error(codes.Unavailable, err.Error())
}

// mostTries is how often a request is decided whose limits are replaced meanwhile.
const mostTries = 10

// errReplaced means that the limits of a question are no longer in force.
var errReplaced = errors.New("the limits have been replaced")

// decide decides about a request by the limits in force.
func (s *RateLimit) decide(ctx context.Context, r *rls.RateLimitRequest, q *question) (*rls.RateLimitResponse, error) {
	a := s.active.Load()
	if err := q.ask(s, a, r); err != nil {
		return nil, told(s.options.OnInvalid, err)
	}
	if len(q.charges) == 0 {
		if f := s.options.OnUnknown; f != nil && !a.tree.Has(r.GetDomain()) {
			f(r.GetDomain(), func() string { return a.tree.Near(r.GetDomain()) })
		}
		return q.answer(nil), nil
	}
	d, err := s.limiter.Take(ctx, diana.Request{Path: "/" + r.GetDomain(), Charges: q.charges})
	switch {
	case err == nil:
		defer d.Done()
		if refunds := q.spent(&d); len(refunds) > 0 {
			// If the limits have just been replaced, the charges stay: that refuses too much rather than too little.
			undone, _ := s.limiter.Take(context.WithoutCancel(ctx), diana.Request{Path: "/" + r.GetDomain(), Charges: refunds})
			undone.Done()
		}
		return q.answer(&d), nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	s.mu.Lock() // the limiter can have other rules a moment before s.active has them
	defer s.mu.Unlock()
	return nil, fmt.Errorf("%w: %w", errReplaced, err)
}

// Bounds of a request.
const (
	mostDescriptors = 1024
	mostEntries     = 64 // of a descriptor
)

// check returns an error for a request that cannot be decided.
func check(r *rls.RateLimitRequest) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	case n == 0:
		return status.Error(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	case n > mostDescriptors:
		return status.Errorf(codes.InvalidArgument, "descriptors: expected at most %d, found %d", mostDescriptors, n)
	}
	for i, d := range r.GetDescriptors() {
		if n := len(d.GetEntries()); n > mostEntries {
			return status.Errorf(codes.InvalidArgument, "descriptors[%d].entries: expected at most %d, found %d", i, mostEntries, n)
		}
	}
	return nil
}
