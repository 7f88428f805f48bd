// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/diana-limiter/diana/internal/redisfault"
)

// A Store uses Redis, doubts it, or works without it:
//
//	         a call fails                 no answer in doubtTime, or two refusals
//	in use ---------------> in doubt -------------------------------------------> down
//	   ^                       |                                                   |
//	   '-----------------------'<--------------------------------------------------'
//	     an answer in time               two answers in half the time, one after another
//
// In doubt and down no request asks Redis: the caller decides by itself and debits. So no
// request waits for more than one call. Doubt is not reported, because on a busy machine this
// process is late far more often than Redis.
//
// A process that is late itself must not take Redis for dead. So doubt is counted in ticks. A
// tick counts when it has fired, however late. A process that gets no processor time has no
// ticks, so it doubts for longer.
//
// Before requests use Redis again, the gateway asks which calls were carried out, reads the
// resets, renews its slots, and sends its debts. New debts arise until Redis is in use.
// Therefore the gateway does not wait for the last few. It sends them ahead of the first
// requests, in the same call or in an earlier one.
const (
	// Each gateway announces itself and reads the resets. The pause, which can be a tenth longer, is
	// short enough that a reset arrives within a second.
	announceEvery = 800 * time.Millisecond
	probeEvery    = 200 * time.Millisecond
	doubtEvery    = 20 * time.Millisecond
	probesToTrust = 2

	tick       = 10 * time.Millisecond
	doubtTime  = time.Second            // in ticks, and at least the timeout
	doubtProbe = 250 * time.Millisecond // the longest probe in doubt, and at least the timeout
	doubts     = 2                      // this many errors of probes end the doubt

	sendTime = time.Second // for debts before requests use Redis again; the rest follows

	expireAfter = 3 * time.Second // of a gateway that no longer announces itself
)

// watcher detects when Redis becomes unreachable and reachable. It belongs to one goroutine.
type watcher struct {
	store  *Store
	health Health // as last reported

	forgot  bool          // Redis has lost its memory, which is not reported yet
	good    int           // probes in a row that were answered in time
	waited  time.Duration // ticks in doubt
	errors  int           // of probes in doubt
	renewed time.Time     // when leases were renewed last
	back    time.Time     // when Redis last became reachable
	resets  int64         // the newest known reset, by its score in Redis
	tags    int           // of another gateway, see news
}

func newWatcher(s *Store) *watcher {
	w := &watcher{store: s, health: Health{Gateways: max(s.options.Gateways, 1)}}
	w.good = probesToTrust - 1 // the first time, one probe is enough
	return w
}

// run watches Redis until Close.
func (w *watcher) run() {
	s := w.store
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.link.down: //nolint:errcheck // a call has failed, and the probe finds the reason
			w.waited, w.errors = 0, 0
			next.Reset(0)
		case <-next.C:
			wait := w.probe()
			next.Reset(wait*9/10 + rand.N(wait/5)) // so that the gateways do not ask all at once
		}
	}
}

// probe does what is due, and returns how long to wait until the next.
func (w *watcher) probe() time.Duration {
	s := w.store
	switch {
	case s.Up():
		w.heartbeat()
		if s.Up() {
			return announceEvery
		}
		return tick
	case w.health.Up:
		w.probeInDoubt()
		return doubtEvery
	default:
		s.gateway.reports.note(s.minute()) // otherwise an outage would count as one minute
		w.probeDown()
		if s.Up() {
			return announceEvery
		}
		return probeEvery
	}
}

// heartbeat announces this gateway, and renews what it holds.
func (w *watcher) heartbeat() {
	s := w.store
	if s.batchers.anyOpen() { // a call failed just before Redis was in use
		s.link.fail(errOpen)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(s.requestTimeout(), doubtProbe))
	defer cancel()
	gateways, err := w.announce(ctx)
	if err != nil {
		s.link.fail(err)
		return
	}
	if time.Since(w.back) < expireAfter { // some gateways may not have announced themselves yet
		gateways = max(gateways, w.health.Gateways)
	}
	w.report(Health{Up: true, Gateways: gateways})
	for _, br := range s.batchers {
		if !br.receipts.old() {
			continue
		}
		_, forgot, err := w.resolve(ctx, br)
		if w.forgot = w.forgot || forgot; forgot && err == nil {
			err = errLost
		}
		if err != nil {
			s.link.fail(err)
			return
		}
		br.receipts.answered()
	}
	// A call that fails has reported it to s.link.
	all := time.Since(w.renewed) > leaseTime*time.Microsecond/4
	if all {
		w.renewed = time.Now()
	}
	_ = s.leases.renewAll(!all)
	_ = s.debts.send(time.Now().Add(sendTime), 0)
}

// announce announces this gateway, forgets the actors that others have reset, and returns the number
// of gateways.
func (w *watcher) announce(ctx context.Context) (gateways int, err error) {
	n, err := w.store.gateway.announce(ctx, w.resets)
	if err != nil {
		return 0, err
	}
	w.resets, w.tags = n.newest, n.tags
	if w.store.Up() && n.epoch > w.store.batchers[0].receipts.epoch.Load() { // another gateway has noticed a loss
		w.store.link.fail(errLost)
	}
	for _, r := range n.resets {
		if r.store != w.store.id { // otherwise the Store has forgotten the actor already
			w.store.forget(r)
		}
	}
	return n.gateways, nil
}

// probeInDoubt asks Redis, because only this gateway may have been late.
func (w *watcher) probeInDoubt() {
	s := w.store
	took, gateways, err := w.ask(max(s.requestTimeout(), doubtProbe))
	w.waited += took
	if err == nil && took < s.requestTimeout() {
		if took, err = w.use(gateways); err == nil {
			return
		}
		w.waited += took
	}
	if err != nil && !redisfault.Late(err) {
		w.errors++
	}
	if w.waited < max(doubtTime, s.requestTimeout()) && w.errors < doubts {
		return
	}
	if err == nil {
		err = errSlow
	}
	w.good = 0
	w.report(Health{Reason: err, Gateways: w.health.Gateways})
}

var (
	errLost = errors.New("it has lost counters")
	errSlow = errors.New("its answers take longer than redis.timeout")
	errOpen = fmt.Errorf("a call is open: %w", context.DeadlineExceeded)
)

// probeDown checks whether Redis is reachable again.
func (w *watcher) probeDown() {
	s := w.store
	took, gateways, err := w.ask(max(s.requestTimeout(), connectTimeout)) // a connection may be needed first
	switch {
	case err != nil:
		w.good = 0
		w.report(Health{Reason: err, Gateways: w.health.Gateways})
	case took > max(s.requestTimeout()/2, tick):
		w.good = 0
	default:
		if w.good++; w.good < probesToTrust {
			return
		}
		if _, err := w.use(gateways); err != nil {
			w.report(Health{Reason: err, Gateways: w.health.Gateways})
		}
	}
}

// ask asks all batchers' receipts as requests would, and how many gateways live. It writes, because a
// server that cannot write is useless. took is in ticks.
//
// A late answer concludes no call. It can be that of a master that hung and has been replaced. Such a master carries out
// what it has received before it answers. Then it becomes a replica and loses that.
func (w *watcher) ask(most time.Duration) (took time.Duration, gateways int, err error) {
	took, err = inTicks(most, func(ctx context.Context) (err error) {
		var forgot bool
		gateways, forgot, err = w.resolveAll(ctx)
		w.forgot = w.forgot || forgot
		return err
	})
	for _, br := range w.store.batchers {
		if err == nil && took <= max(w.store.requestTimeout(), tick) {
			br.receipts.answered()
		}
		br.receipts.answer = nil
	}
	return took, gateways, err
}

// inTicks calls f with a context that ends after most, and returns how many ticks have passed.
func inTicks(most time.Duration, f func(context.Context) error) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case err := <-done:
			return took, err
		case <-t.C:
			took += tick
		}
	}
}

// use lets requests ask Redis again, after Redis has received all that has happened without it. If it
// fails, Redis stays out of use. took is in ticks.
func (w *watcher) use(gateways int) (took time.Duration, err error) {
	s := w.store
	w.good = 0
	s.refused.forgetAll()
	took, err = inTicks(sendTime, func(ctx context.Context) error {
		if _, err := w.announce(ctx); err != nil { // a reset cancels earlier debts
			return err
		}
		if err := s.leases.renewAll(false); err != nil {
			return err
		}
		if w.forgot {
			if err := s.restoreAll(); err != nil {
				return err
			}
		}
		return s.debts.send(time.Now().Add(sendTime), fewDebts)
	})
	if err != nil {
		return took, err
	}
	if s.batchers.anyOpen() { // a call has failed since the question
		return took, errOpen
	}
	for len(s.link.down) > 0 { // earlier failures
		<-s.link.down //nolint:errcheck // an old reason
	}
	w.back = time.Now()
	gateways = max(gateways, w.health.Gateways)
	if w.forgot || gateways != w.health.Gateways { // what the next requests are evaluated by
		w.report(Health{Up: w.health.Up, Gateways: gateways, Forgot: w.forgot})
		w.forgot = false
	}
	last := s.debts.sendSome(fewDebts, true)
	s.link.up.Store(true)
	w.report(Health{Up: true, Gateways: gateways}) // only now: who reads it relies on it
	s.once.Do(func() { close(s.ready) })
	if err := wait(last); err != nil {
		s.link.fail(err) // the call may have failed before Redis was in use
	}
	_ = s.debts.send(time.Now().Add(sendTime), 0) // of requests that were being decided
	return took, nil
}

// report reports the health to the caller, if it has changed.
func (w *watcher) report(h Health) {
	old := w.health
	if h.Up {
		w.store.gateway.before.Store(0)
	}
	h.Gateways = max(h.Gateways, int(w.store.gateway.before.Load()))
	h.OtherTags = w.tags
	w.health = h
	news := h.Forgot || h.Up != old.Up || h.Gateways != old.Gateways || h.OtherTags != old.OtherTags || (h.Reason == nil) != (old.Reason == nil)
	if changed := w.store.options.Changed; news && changed != nil {
		changed(h)
	}
}
