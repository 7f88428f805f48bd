// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// While Redis is within reach a gateway says each second that it lives, which also
// finds out how many others do. When a call fails nothing is asked any more but by this
// probe, five times a second; Redis is used again when the probe has succeeded twice in
// a row, in half the time that a request may wait. One that is slow rather than dead so
// stays out of use, instead of going in and out.
const (
	announceEvery = time.Second
	probeEvery    = 200 * time.Millisecond
	probesToTrust = 2

	expireAfter = 3 * time.Second // of a gateway that no longer says that it lives
)

// announceScript notes that a gateway lives, forgets those that have not said so for
// three seconds, and returns how many there are.
var announceScript = plainScript(`
-- KEYS  the set of gateways, by when they last said that they live
-- ARGV  this gateway; with a minus in front: it lives as another by now
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if ARGV[1]:sub(1, 1) == '-' then
  redis.call('ZREM', KEYS[1], ARGV[1]:sub(2))
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - 3000000))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf') -- the clock was set back
redis.call('PEXPIRE', KEYS[1], 3000)
return cmsgpack.pack({redis.call('ZCARD', KEYS[1])})
`)

// watch finds out when Redis is out of reach and when it is back, until Close.
func (s *Store) watch() {
	health := Health{Gateways: max(s.options.Gateways, 1)}
	change := func(h Health) {
		if h.Up == health.Up && h.Gateways == health.Gateways && (h.Reason == nil) == (health.Reason == nil) {
			return
		}
		health = h
		if s.options.Changed != nil {
			s.options.Changed(h)
		}
	}
	good := probesToTrust - 1 // the first time, one will do
	tick := time.NewTimer(0)
	defer tick.Stop()
	var renewed, back time.Time // when leases were renewed, and when Redis came back, last
	for {
		select {
		case <-s.stop:
			return
		case reason := <-s.link.down:
			change(Health{Reason: reason, Gateways: health.Gateways})
			good = 0
			tick.Reset(probeEvery)
			continue
		case <-tick.C:
		}
		begin := time.Now()
		gateways, err := s.probe()
		switch {
		case err != nil:
			s.link.up.Store(false)
			change(Health{Reason: err, Gateways: health.Gateways})
			good = 0
		case s.link.up.Load():
			if time.Since(back) < expireAfter { // some may not have said yet that they live
				gateways = max(gateways, health.Gateways)
			}
			change(Health{Up: true, Gateways: gateways})
		case time.Since(begin) > s.timeout/2:
			good = 0
		default:
			if good++; good >= probesToTrust {
				s.refused.forgetAll()
				s.leases.rename()
				if err := s.renewLeases(true); err != nil {
					change(Health{Reason: err, Gateways: health.Gateways})
					good = 0
					break
				}
				s.leases.former.Store(s.leases.name.Load())
				s.drainDown()
				back = time.Now()
				change(Health{Up: true, Gateways: max(gateways, health.Gateways)})
				good = 0              // for when it is lost again, perhaps while the next probe is under way
				s.link.up.Store(true) // after everyone knows
			}
		}
		wait := announceEvery
		if !s.link.up.Load() {
			wait = probeEvery
		} else {
			_ = s.renewLost() // a call that fails has told s.link
			if time.Since(renewed) > leaseTime*time.Microsecond/4 {
				renewed = time.Now()
				_ = s.renewLeases(false)
			}
		}
		tick.Reset(wait*9/10 + rand.N(wait/5)) // so that gateways do not come all at once
	}
}

// drainDown forgets a failure that was noted before Redis was found to be back.
func (s *Store) drainDown() {
	for len(s.link.down) > 0 {
		<-s.link.down //nolint:errcheck // an old reason
	}
}

// probe asks what a request would ask, and how many gateways live. It writes, as a
// server that cannot is of no use. Of a Cluster it asks every lane, unless Redis is in
// use, when requests do: the first one, and then all others at once, as requests would.
func (s *Store) probe() (gateways int, err error) {
	others := s.lanes[1:]
	if s.Up() {
		others = nil
	}
	if gateways, err = s.announce(s.lanes[0]); err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, l := range others {
		all.Go(func() {
			n, failure := s.announce(l)
			mu.Lock()
			defer mu.Unlock()
			gateways = max(gateways, n)
			if err == nil {
				err = failure
			}
		})
	}
	all.Wait()
	return gateways, err
}

func (s *Store) announce(l *lane) (gateways int, err error) {
	patience := s.timeout
	if !s.Up() { // nobody else waits, and there may have to be a connection first
		patience = max(patience, connectTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gateway := s.gateway
	if s.leaving.Load() {
		gateway = -gateway
	}
	answer, err := s.call(ctx, announceScript, []string{s.prefix + ":" + l.tag + "gateways"}, strconv.AppendInt(nil, gateway, 10))
	if err != nil {
		return 0, err
	}
	n, err := unpack(answer)
	if err != nil || len(n) != 1 {
		return 0, errNoArray
	}
	return max(int(n[0]), 1), nil
}
