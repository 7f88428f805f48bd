// SPDX-License-Identifier: MIT

package redisstore

import "slices"

// A call is lone if it holds nothing but equal requests with one charge. Most calls of a gateway that is not busy are.
// The short script in lone.lua decides them. It keeps no bases, so it does not decide while states are put back.
func (b *batch) isLone() bool {
	br := b.batcher
	if br.store.long.Load() || len(b.groups) != 1 || len(b.charges) != 1 || b.changes() || br.receipts.restoring() {
		return false
	}
	g := &b.groups[0]
	return b.charges[0].cost >= 0 && !g.peeks && !g.waits && !g.reserves && !g.debits
}

// packLone returns the argument of the script for a lone call.
func (b *batch) packLone() []byte {
	p, c := b.packed, b.limits[0]
	for _, n := range b.head() {
		p = appendNumber(p, n)
	}
	p = appendNumber(p, int64(c.script))
	p = appendNumber(p, int64(b.groups[0].requests))
	p = appendNumber(p, b.charges[0].cost)
	args := append(slices.Clip(c.args), b.around(c)...)
	p = appendHeader(p, len(args))
	for _, n := range args {
		p = appendNumber(p, n)
	}
	b.packed = p
	return p
}
