// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/actor"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/certificate"
	"github.com/diana-limiter/diana/cmd/diana/internal/chain"
	"github.com/diana-limiter/diana/cmd/diana/internal/clientconn"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/decoders"
	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/envoy"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// Gateway is the running program: its servers for requests, for administrators, and for other gateways
// that ask about their requests.
type Gateway struct {
	logger   *slog.Logger
	limiter  *diana.Limiter
	limits   *envoy.RateLimit // nil: there are no descriptors
	server   *http.Server
	admin    *http.Server
	check    *http.Server
	grpc     server                      // nil: there is none
	follow   []func(ctx context.Context) // run beside the servers
	reread   func()                      // reads the configuration; it does not wait
	timeouts Timeouts
	tls      *certificate.Pair // of all servers except that for administrators; nil: none

	inFlight inFlight
	draining atomic.Bool
	leaving  atomic.Bool               // another process has taken over
	untold   atomic.Pointer[time.Time] // when the last answer ended that began before that, and so says nothing of it
	cut      context.CancelFunc        // cancels every request

	open     []listening        // set by listen
	handover *handover.Handover // set by listen; nil: no other process takes over
}

// Open returns a gateway whose listeners are open. If its configuration is not valid, Open prints the errors. The
// error is ErrStopped if ctx ends or a signal stops the program meanwhile.
func Open(ctx context.Context, signals <-chan os.Signal, f *Flags, o *command.Output, logger *slog.Logger) (*Gateway, error) {
	g, err := unlessStopped(ctx, signals, func() (*Gateway, error) { return build(ctx, f, o, logger) })
	if err != nil {
		return nil, err
	}
	if err := g.openListeners(ctx, signals, f); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Print prints where the gateway listens.
func (g *Gateway) Print(o *command.Output) {
	for _, l := range g.open {
		o.Printf("diana: %s%s\n", l.name, l.Addr())
	}
}

// Close closes what Open has opened.
func (g *Gateway) Close() {
	g.close()
	if g.limits != nil {
		_ = g.limits.Close() // the program ends anyway
	}
	_ = g.limiter.Close()
}

// build returns the gateway of the flags. It does not listen yet.
func build(ctx context.Context, f *Flags, o *command.Output, logger *slog.Logger) (*Gateway, error) {
	if err := f.Access.AdminToken.Check(logger); err != nil {
		return nil, err
	}
	pair, err := f.TLS.Open(logger)
	if err != nil {
		return nil, err
	}
	s := command.Chosen(f.Config)
	s.Empty = s.BuiltIn() && len(f.Decisions.Descriptors) > 0

	var limiter *diana.Limiter
	active := func() *config.Config { return limiter.Config() } // of requests, so not before there is a limiter
	redis := dianaprom.NewRedisCalls()
	decoders := &decoders.Decoders{}
	upgrades := upstream.NewUpgrades(f.Upstreams.Upgrade, logger)
	ring := f.History.NewRing(active)
	options := diana.Options{
		Accept:        f.Decisions.accept,
		Decoders:      decoders.ByCoding(),
		Logger:        logger,
		MeasureBegin:  true,
		OnRefusal:     logs.Refusals(logger),
		RedisObserved: redis.Observe,
		Upstream:      upstream.Diverted(f.Timeouts.Timeouts, active, upgrades, logger),
	}
	ring.Observe(&options)
	if limiter, err = s.Open(options); err != nil {
		return nil, o.Faults(s, err)
	}
	if s.BuiltIn() && !s.Empty {
		logger.Info("no --config and no " + command.UsualFile + " here: using the " + command.DemoSource)
	}
	rejected := newRejections(logger)
	limits, err := f.Decisions.openLimits(ctx, limiter, redis, rejected, logger)
	if err != nil {
		return nil, errors.Join(o.DescriptorFaults(err), limiter.Close())
	}
	c, rules := limiter.Config(), 0
	for i := range c.Limits {
		rules += len(c.Limits[i].Rules)
	}
	logger.Info("configuration", "source", c.Source, "version", c.Version, "rules", rules)

	registry := admin.NewRegistry(limiter, redis)
	decoders.Register(registry)
	upgrades.Register(registry)
	metrics := prometheus.Gatherers{registry}
	if f.Decisions.asked() {
		metrics = append(metrics, rejected.registry())
	}
	if limits != nil {
		metrics = append(metrics, admin.WithDescriptors(registry, limits.Limiter(), limits.Failed))
	}
	last, pool := f.Upstreams.Proxy(f.Timeouts.Timeouts, limiter.Config, upgrades, logger)
	if pool != nil {
		registry.MustRegister(pool.Metrics())
	}
	view := admin.NewLive(limiter, ring)
	follow := []func(context.Context){view.Run}
	if pair != nil {
		registry.MustRegister(pair.Expiry())
		follow = append(follow, pair.Follow)
	}
	return assemble(parts{
		limiter: limiter, limits: limits, last: decoders.Spare(last), ring: ring, rejected: rejected,
		flags: f, tls: pair, metrics: metrics, logger: logger, follow: follow,
		reset: admin.NoteResets(view, ring.Resetter(limiter.Reset)),
		api: []func(*http.ServeMux){
			view.Register,
			(&actor.View{Limiter: limiter}).Register,
			whatif.New(whatIf(limiter, ring, f)).Register,
			admin.RegisterPeek(limiter),
			changes(s, limiter, f.Decisions.accept, logger).Register,
		},
		reread: func() {
			if s.BuiltIn() {
				logger.Info("nothing to reload: the configuration is built in")
				return
			}
			// Reload logs its result. It may wait for a configuration centre, and signals must not wait for it.
			go func() {
				_ = limiter.Reload()
				if limits != nil {
					limits.Reload()
				}
			}()
		},
	}), nil
}

// parts are what a gateway is made of.
type parts struct {
	flags    *Flags
	logger   *slog.Logger
	limiter  *diana.Limiter
	limits   *envoy.RateLimit // nil: there are no descriptors
	last     http.Handler     // answers the requests that the limiter allows; nil: the gateway answers them itself
	ring     *history.Ring    // nil: none
	rejected *rejections
	tls      *certificate.Pair // nil: none
	metrics  prometheus.Gatherer
	reset    admin.Resetter
	api      []func(*http.ServeMux) // routes of the administrators' listener
	follow   []func(context.Context)
	reread   func()
}

// assemble returns the gateway of its parts.
func assemble(p parts) *Gateway {
	ctx, cut := context.WithCancel(context.Background())
	t := p.flags.Timeouts
	g := &Gateway{
		logger: p.logger, limiter: p.limiter, limits: p.limits, cut: cut, timeouts: t, tls: p.tls, follow: p.follow, reread: p.reread,
	}
	last := p.last
	if last == nil {
		last = echo(p.limiter)
	}
	g.server = forClients(ctx, p.ring.Filter(g.inFrontOf(last)), t, p.flags.TLS.H2C, p.logger)
	g.check = forClients(ctx, chain.Of(checkHandler(p.limiter, p.limits, p.rejected), clientconn.Timeouts(t.Read, t.Write)), t, p.flags.TLS.H2C, p.logger)
	if p.flags.Decisions.GRPC != "" {
		g.grpc = grpcServer(p.limiter, p.limits, p.rejected, t, p.tls)
	}
	pages := admin.Pages(func() admin.State { return admin.NewState(p.limiter, p.limits) }, g.draining.Load, p.metrics, p.logger)
	g.admin = forAdministrators(p.flags.Access.Guard(admin.WithAPI(pages, p.api...), admin.Reset(p.limiter.Config, p.reset, p.logger), p.logger), p.logger)
	return g
}

// inFrontOf returns last behind all filters of the gateway, in the order in which a request passes them.
func (g *Gateway) inFrontOf(last http.Handler) http.Handler {
	names := func(r *http.Request) []slog.Attr { return logs.Identities(g.limiter, r) }
	return chain.Of(serverOptions(last),
		upstream.DropConnectionFields,                          // first, so that no filter reads fields that are not for it
		clientconn.Timeouts(g.timeouts.Read, g.timeouts.Write), // before anything reads a body
		logs.WithRequestID,                                     // refusals have it too
		g.limiter.Handler,                                      // refuses what is too much
		g.inFlight.filter,                                      // a drain waits for allowed requests
		logs.Access(g.logger, names),                           // last, because a flood of refused requests must not fill the log
	)
}
