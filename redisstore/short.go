// SPDX-License-Identifier: MIT

package redisstore

import (
	"encoding/binary"
	"math"
)

// A call is short if it holds nothing but requests with one charge each, and each counter has one group of them. Most calls
// are, and those of a gateway that is not busy have one request. short.lua decides them. It keeps no bases, so it does not
// decide while states are put back.
func (b *batch) isShort() bool {
	br := b.batcher
	if br.store.long.Load() || len(b.groups) != len(b.keys) || b.changes() || br.receipts.restoring() {
		return false
	}
	for _, c := range b.limits {
		if c.script > math.MaxUint8 {
			return false
		}
	}
	for i := range b.groups {
		if g := &b.groups[i]; g.end-g.first != 1 || b.charges[g.first].cost <= 0 || g.peeks || g.reserves || g.debits {
			return false
		}
	}
	return true
}

// packShort returns the arguments of the script for a short call, see short.lua.
func (b *batch) packShort() [][]byte {
	h := b.head()
	p := append(b.packed, 'S', byte(h.remembers))
	for _, n := range [...]int64{b.call, b.known, b.epoch} {
		p = appendSeven(p, n)
	}
	special := b.now != 0
	var of *counters
	var around []int64
	for i := range b.groups { // the ith is of the ith key
		ch := b.charges[b.groups[i].first]
		if c := b.limits[ch.limit-1]; c != of {
			of, around, special = c, b.around(c), special || c.held
		}
		p = append(p, byte(of.script))
		p = binary.LittleEndian.AppendUint16(p, uint16(len(of.args)+len(around))) // Lua cannot unpack more
		p = binary.LittleEndian.AppendUint32(p, uint32(b.groups[i].requests))
		p = appendSeven(p, ch.cost)
		for _, n := range of.args {
			p = appendSeven(p, n)
		}
		for _, n := range around {
			p = appendSeven(p, n)
		}
	}
	if b.packed = p; !special {
		return [][]byte{p}
	}
	var more []byte
	for _, n := range [...]int64{b.now, h.grace, h.gateway, h.lease} {
		more = binary.LittleEndian.AppendUint64(more, math.Float64bits(float64(n)))
	}
	return [][]byte{p, more}
}

// readShort reads the answer to a short call, and returns the same as driver.lua would. There are no values and uses if the
// answer brings no states.
func (b *batch) readShort(answer []byte) (numbers []int64, values []string, uses []int64, err error) {
	r := shortReader{rest: answer}
	numbers = make([]int64, 0, 2+len(b.groups)*(1+outcomeSize))
	numbers = append(numbers, r.number(7), r.number(1))
	states := b.batcher.store.memory.on()
	if states {
		values, uses = make([]string, 0, len(b.groups)), make([]int64, 0, 3*len(b.groups))
	}
	for i := range b.groups {
		requests := int64(b.groups[i].requests)
		granted, letter, size := requests, r.number(1), 7
		switch letter {
		case 'N':
			size = 4
		case 'W':
		case 'F':
			granted = r.number(4)
		default:
			return nil, nil, nil, errNoArray
		}
		if numbers = append(numbers, granted); granted > 0 {
			numbers = append(numbers, 1, r.number(size), r.number(size), r.number(size))
		}
		if 0 <= granted && granted < requests {
			numbers = append(numbers, r.number(1), r.number(7), r.number(7), r.number(7))
		}
		if states {
			used, end := r.number(size), r.number(size)
			if letter != 'F' {
				end = numbers[0] + 1000*end // the time to live
			}
			uses = append(uses, used, end, -1) // no base: states are not put back meanwhile
			values = append(values, string(r.take(int(r.number(4)))))
		}
	}
	if r.cut || len(r.rest) > 0 {
		return nil, nil, nil, errNoArray
	}
	if numbers[1] == 0 {
		return numbers, nil, nil, nil
	}
	return numbers, values, uses, nil
}

// Redis reads and writes numbers of a fixed size faster than MessagePack. 7 bytes hold all that a limit has.

func appendSeven(b []byte, n int64) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	return b[:len(b)-1]
}

// shortReader reads an answer. If that ends too early, cut is true, and all that it reads then is zero.
type shortReader struct {
	rest []byte
	cut  bool
}

func (r *shortReader) take(size int) []byte {
	if size < 0 || size > len(r.rest) {
		r.rest, r.cut = nil, true
		return nil
	}
	taken := r.rest[:size]
	r.rest = r.rest[size:]
	return taken
}

// number reads a number with a sign of some bytes.
func (r *shortReader) number(size int) int64 {
	var wide [8]byte
	copy(wide[8-size:], r.take(size))
	return int64(binary.LittleEndian.Uint64(wide[:])) >> (64 - 8*size)
}
