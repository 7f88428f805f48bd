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
	"github.com/diana-limiter/diana/internal/descriptors"
)

// RateLimitOptions configure a RateLimit.
type RateLimitOptions struct {
	// Paths are the files of envoyproxy/ratelimit, and directories of such files. Of these count the names that end in
	// .yaml or .yml and do not begin with a dot. With AnyName all names count, and a directory may have none; with
	// DotFiles also those that begin with a dot.
	Paths             []string
	AnyName, DotFiles bool

	// XDS sends the limits in place of Paths. Nil means none.
	XDS *XDS

	// StartWithout lets OpenRateLimit return before there are valid limits. Meanwhile each request gets an error.
	StartWithout bool

	// Settings returns the settings that hold for the limits too, such as redis and max_keys. Its limits
	// do not matter. It is called now and then; a new result takes effect within a second.
	Settings func() *config.Config

	// ChargeAll charges a request to all its descriptors, also if one of them is over its limit, as
	// envoyproxy/ratelimit does. Otherwise such a request is charged to none.
	ChargeAll bool

	// PerSecond is where limits per second are counted, in place of the Redis of Settings. It needs Original. Nil means that
	// they are counted with the others.
	PerSecond *config.Redis

	// Merge lets several files have the same domain.
	Merge bool

	// Original makes responses tell what those of envoyproxy/ratelimit tell. Nil means those of Diana.
	Original *Original

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

	// OnCounted is called for each descriptor with a limit, and OnLoaded each time that new limits are in force or have
	// mistakes. They must return soon. Nil means none.
	OnCounted func(Counted)
	OnLoaded  func(error)
}

// RateLimit is the service envoy.service.ratelimit.v3.RateLimitService. It finds limits in the files of
// envoyproxy/ratelimit and counts them as Diana does: exactly, by any algorithm, and by shares while
// Redis is down. It is safe for concurrent use. Use OpenRateLimit, and Close at the end.
type RateLimit struct {
	rls.UnimplementedRateLimitServiceServer

	options RateLimitOptions
	limiter *diana.Limiter // of all limits, or of those that seconds does not count
	seconds *diana.Limiter // of limits per second; nil: none
	active  atomic.Pointer[active]
	brought sync.Map  // of *limit, by override
	pool    sync.Pool // of *question

	failed atomic.Bool   // the files as they were last read are not in force
	first  chan struct{} // closed when there are limits

	mu        sync.Mutex     // guards changes of the limits, and the rest
	settings  *config.Config // in force
	overrides overrides
	tried     *config.Config     // settings with which the files were last read
	version   version            // of the files as they were last read
	unread    string             // why they could not be read; empty: they could
	received  []descriptors.File // the last valid ones of XDS

	stopping context.Context // ends with Close
	stop     context.CancelFunc
	stopped  sync.WaitGroup
}

// redisPrefix is behind the prefix of the settings: the gateways of a Limiter and those of a RateLimit
// would count each other otherwise.
const redisPrefix = ":envoy"

// OpenRateLimit reads the files and connects to Redis. It returns when limits can be kept, or after a
// second; with XDS, when the first valid limits are there, or ctx ends. The error lists all mistakes of the files.
func OpenRateLimit(ctx context.Context, o RateLimitOptions) (*RateLimit, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	settings := o.Settings()
	s := &RateLimit{options: o, settings: settings, tried: settings, first: make(chan struct{})}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.pool.New = func() any { return new(question) }
	if o.PerSecond != nil && o.Original == nil {
		return nil, errors.New("envoy: PerSecond: expected Original too")
	}
	a := newActive(descriptors.None(), version{})
	if o.XDS == nil && !o.StartWithout {
		files, v, err := s.read()
		if err == nil {
			a, err = s.parse(files, v, settings)
		}
		if err != nil {
			return nil, err
		}
		s.version = v
		close(s.first)
	}
	options := diana.Options{
		Logger: o.Logger, RedisObserved: o.RedisObserved, OnRefusal: o.OnRefusal,
		// For the limiter, a limit that a request brings is a change too. Reload logs the changes of the files.
		OnChange: func(_, _ *config.Config) {},
	}
	var err error
	if s.limiter, err = options.New(s.compose(a, settings, false)); err != nil {
		return nil, err
	}
	if o.PerSecond != nil {
		options.Logger = o.Logger.With("limits", "per second")
		if s.seconds, err = options.New(s.compose(a, settings, true)); err != nil {
			return nil, errors.Join(err, s.limiter.Close())
		}
	}
	s.active.Store(a)
	if s.Loaded() {
		s.log(a)
	}
	ready, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, l := range s.Limiters() {
		_ = l.Ready(ready) // if Redis does not answer, on_error decides
	}
	switch {
	case o.XDS != nil:
		s.stopped.Go(func() { o.XDS.follow(s.stopping, s.offer, o.Logger) })
	case o.StartWithout:
		s.Reload()
	}
	s.stopped.Go(s.watch)
	if o.StartWithout {
		return s, nil
	}
	select {
	case <-s.first:
		return s, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Close())
	}
}

// Loaded reports whether there are limits. With StartWithout there can be none at first.
func (s *RateLimit) Loaded() bool {
	select {
	case <-s.first:
		return true
	default:
		return false
	}
}

// Limit is a limit of a descriptor.
type Limit struct {
	Name            string // the domain and the keys, such as "shop.path_/cart.user"
	RequestsPerUnit uint32
	Unit            rls.RateLimitResponse_RateLimit_Unit
	Shadow, Quota   bool
}

// Each calls f for each limit in force, in their order, until f returns false.
func (s *RateLimit) Each(f func(Limit) bool) {
	for _, l := range s.active.Load().tree.Limits() {
		if !f(Limit{l.FullName, l.RequestsPerUnit, rls.RateLimitResponse_RateLimit_Unit(l.Unit), l.Shadow, l.Quota}) {
			return
		}
	}
}

// Limiter returns what counts the limits, for metrics. Only the RateLimit changes it. With PerSecond it does not count
// limits per second.
func (s *RateLimit) Limiter() *diana.Limiter { return s.limiter }

// Limiters returns the Limiter, and with PerSecond that of limits per second.
func (s *RateLimit) Limiters() []*diana.Limiter {
	if s.seconds == nil {
		return []*diana.Limiter{s.limiter}
	}
	return []*diana.Limiter{s.limiter, s.seconds}
}

// Status returns the state of the limits, as of a Limiter that follows the files. A rule is the limit of a
// descriptor, or one that requests bring.
func (s *RateLimit) Status() diana.Status {
	status := s.limiter.Status()
	c, since := &status.Config, s.active.Load().since
	c.Since, c.LastReloadSuccess, c.LastReloadSuccessful = since, since, !s.failed.Load()
	c.Reason = "the files of descriptors are valid"
	switch {
	case !s.Loaded():
		c.Reason = "no valid descriptors have arrived yet"
	case !c.LastReloadSuccessful:
		c.Reason = "the files of descriptors are not valid, so earlier limits stay"
	}
	return status
}

// Close ends the watching of the files and the connection to Redis.
func (s *RateLimit) Close() error {
	s.stop()
	s.stopped.Wait()
	var errs []error
	for _, l := range s.Limiters() {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// ShouldRateLimit decides about a request. The error is InvalidArgument for a request without a domain or
// descriptors, or with too many; then nothing is charged.
func (s *RateLimit) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer, err := s.try(ctx, r)
	if o := s.options.Original; err != nil && ctx.Err() == nil && o != nil && o.OnError != nil {
		o.OnError()
	}
	return answer, err
}

// try is ShouldRateLimit. It decides again if the limits are replaced meanwhile.
func (s *RateLimit) try(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
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
	if !s.Loaded() {
		return nil, status.Error(codes.Unavailable, "no rate limit configuration loaded")
	}
	if err := q.ask(s, a, r); err != nil {
		return nil, told(s.options.OnInvalid, err)
	}
	if len(q.charges) == 0 {
		if f := s.options.OnUnknown; f != nil && !a.tree.Has(r.GetDomain()) {
			f(r.GetDomain(), func() string { return a.tree.Near(r.GetDomain()) })
		}
		return q.answer(s, r, nil), nil
	}
	path := "/" + r.GetDomain()
	d, err := s.take(ctx, q, path)
	switch {
	case err == nil:
		defer d.Done()
		if refunds := q.spent(&d.Decision); len(refunds) > 0 {
			s.refundSpent(ctx, q, path, refunds)
		}
		s.count(a, q, r, &d.Decision)
		return q.answer(s, r, &d.Decision), nil
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
