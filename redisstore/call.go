// SPDX-License-Identifier: MIT

package redisstore

import (
	"time"
)

// leaseTime is how long other gateways assume that a gateway lives, in microseconds.
const leaseTime = 10_000_000

// testGrace is how long keys outlive their expiry when tests set the clock, in milliseconds.
const testGrace = 3_600_000

// send lets Redis decide the batch, and then closes done.
func (b *batch) send() {
	s := b.batcher.store
	b.names = s.keys.counters(b.names, b.batcher.tag, b.keys)
	// The first request has waited longest, and no request waits longer than the timeout.
	most := s.requestTimeout()
	if len(b.groups) == 0 && !b.leads && !s.Up() { // no request waits
		most = max(most, doubtProbe)
	}
	ctx, stop := newPatience(b.born, most)
	defer stop()
	b.names = append(b.names, s.keys.epoch(b.batcher.tag), s.keys.receipts(b.batcher.tag))
	short := b.isShort()
	var args [][]byte
	if short {
		args = b.packShort()
	} else {
		args = [][]byte{b.pack()}
	}
	begin := time.Now()
	reply, err := s.link.call(ctx, s.scripts.script.Load(), b.names, args...)
	s.took.note(time.Since(begin), err)
	if err == nil {
		err = b.read(reply, short)
	}
	if err == nil {
		s.ahead.Store(b.reply[0] - time.Now().UnixMicro())
		s.leases.holdGranted(b)
		if b.reply[1] == 1 {
			b.batcher.receipts.confirm(b.call)
		}
		for _, d := range b.debits {
			s.debts.made(b.debt(d), b.reply[0])
		}
		s.reconciled(b.late, 0)
	}
	if err != nil {
		s.link.fail(err)
	}
	b.end(err)
}

func (b *batch) end(err error) {
	if b.err = err; err != nil {
		b.batcher.store.leases.lose(b.keys)
		b.batcher.receipts.failed(b)
	}
	close(b.done)
}

// pack returns the argument of the script, see driver.lua.
func (b *batch) pack() []byte {
	p, count := appendHeader(b.packed, 0), 0
	number := func(n int64) {
		p = appendNumber(p, n)
		count++
	}
	h := b.head()
	for _, n := range [...]int64{b.now, h.grace, h.gateway, h.lease, b.call, b.known, b.epoch, h.remembers} {
		number(n)
	}
	b.packLimits(number)
	number(int64(len(b.restores)))
	for _, r := range b.restores {
		number(int64(r.key))
		number(int64(r.limit))
		number(r.memo.rank(b.epoch))
		number(r.memo.at)
		p = appendText(p, r.memo.value)
		count++
	}
	number(int64(len(b.renewals)))
	for _, r := range b.renewals {
		number(int64(r.key))
		number(int64(r.limit))
		number(r.n)
	}
	number(int64(len(b.debits)))
	for _, d := range b.debits {
		number(int64(d.key))
		number(int64(d.limit))
		number(d.n)
	}
	number(int64(len(b.refunds)))
	for _, g := range b.refunds {
		number(int64(g.key))
		number(int64(g.limit))
		number(g.at)
		number(g.n)
	}
	number(int64(len(b.resets)))
	for _, r := range b.resets {
		number(int64(r.key))
		number(int64(r.limit))
	}
	number(int64(len(b.groups)))
	for _, g := range b.groups {
		switch { // a request with its own scheduled time is a group of one
		case g.peeks:
			number(-4)
		case g.waits && g.reserves:
			number(-3)
		case g.reserves:
			number(-2)
		case g.waits:
			number(-1)
		default:
			number(int64(g.requests))
		}
		number(int64(g.end - g.first))
		for _, c := range b.charges[g.first:g.end] {
			number(int64(c.key))
			number(int64(c.limit))
			number(c.cost)
			if g.reserves || g.peeks {
				number(c.longest)
			}
		}
	}
	appendHeader(p[:0], count)
	b.packed = p
	return p
}

// packLimits packs the limits of the batch.
func (b *batch) packLimits(number func(int64)) {
	number(int64(len(b.limits)))
	for _, c := range b.limits {
		around := b.around(c)
		number(int64(c.script))
		number(int64(len(c.args) + len(around)))
		for _, a := range c.args {
			number(a)
		}
		for _, a := range around {
			number(a)
		}
	}
}

// head is numbers that both forms of the arguments have, as driver.lua explains them.
type head struct{ grace, gateway, lease, remembers int64 }

func (b *batch) head() head {
	s := b.batcher.store
	h := head{gateway: s.id, lease: leaseTime}
	if s.options.CallerClock { // years may pass between two requests of a test
		h.grace, h.lease = testGrace, 1<<52
	}
	if s.memory.on() {
		h.remembers = 1
	}
	return h
}

// around returns the arguments of a limit that depend on the moment.
func (b *batch) around(c *counters) []int64 {
	if c.around == nil {
		return nil
	}
	return c.around(b.moment())
}

// moment returns the moment of the call by Redis' clock, as far as this process knows it.
func (b *batch) moment() int64 {
	if b.now != 0 {
		return b.now
	}
	return b.batcher.store.now()
}
