// SPDX-License-Identifier: MIT

package redisstore

import (
	"encoding/binary"
	"math"
)

// A call is lone if it holds nothing but equal requests with one charge. Most calls of a gateway that is not busy are.
// The short script in lone.lua decides them. It keeps no bases, so it does not decide while states are put back.
func (b *batch) isLone() bool {
	br := b.batcher
	if br.store.long.Load() || len(b.groups) != 1 || len(b.charges) != 1 || b.limits[0].script > math.MaxUint8 || b.changes() || br.receipts.restoring() {
		return false
	}
	g := &b.groups[0]
	return b.charges[0].cost > 0 && !g.peeks && !g.reserves && !g.debits
}

// packLone returns the arguments of the script for a lone call, see lone.lua.
func (b *batch) packLone() [][]byte {
	p, c, h := append(b.packed, 'L'), b.limits[0], b.head()
	p = append(p, byte(c.script), byte(h.remembers))
	p = binary.LittleEndian.AppendUint32(p, uint32(b.groups[0].requests))
	for _, n := range [...]int64{b.call, b.known, b.epoch, b.charges[0].cost} {
		p = appendSeven(p, n)
	}
	for _, n := range c.args {
		p = appendSeven(p, n)
	}
	for _, n := range b.around(c) {
		p = appendSeven(p, n)
	}
	b.packed = p
	if b.now == 0 && !c.held {
		return [][]byte{p}
	}
	var special []byte
	for _, n := range [...]int64{b.now, h.grace, h.gateway, h.lease} {
		special = binary.LittleEndian.AppendUint64(special, math.Float64bits(float64(n)))
	}
	return [][]byte{p, special}
}

// readLone reads the answer to a lone call. uses is empty if the answer brings no state.
func (b *batch) readLone(r []byte) (numbers []int64, state string, uses []int64, err error) {
	if len(r) < 2 {
		return nil, "", nil, errNoArray
	}
	letter, size := r[0], 4
	switch letter {
	case 'F':
		if numbers, r, err = doubles(r[2:], int(r[1])); err == nil && len(r) > 0 {
			uses, r, err = doubles(r, 2)
		}
	case 'W':
		size = 7
		fallthrough
	case 'N':
		r = r[1:]
		if states := 7 + 5*size; len(r) != 7+3*size && len(r) < states {
			return nil, "", nil, errNoArray
		}
		now := little(&r, 7)
		numbers = []int64{now, 1, int64(b.groups[0].requests), 1, little(&r, size), little(&r, size), little(&r, size)}
		if len(r) > 0 {
			uses = []int64{little(&r, size), now + 1000*little(&r, size)}
		}
	default:
		err = errNoArray
	}
	if len(uses) > 0 {
		uses = append(uses, -1) // no base: states are not put back meanwhile
	}
	return numbers, string(r), uses, err
}

// Redis reads and writes few numbers of a fixed size faster than MessagePack. 7 bytes hold all of a limit.

func appendSeven(b []byte, n int64) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	return b[:len(b)-1]
}

// little takes a number of some bytes, which are there.
func little(b *[]byte, size int) int64 {
	var wide [8]byte
	copy(wide[:], (*b)[:size])
	*b = (*b)[size:]
	return int64(binary.LittleEndian.Uint64(wide[:]))
}

// doubles reads n whole numbers, and returns what follows.
func doubles(b []byte, n int) (numbers []int64, rest []byte, err error) {
	if len(b) < 8*n {
		return nil, nil, errNoArray
	}
	numbers = make([]int64, n)
	for i := range numbers {
		numbers[i] = int64(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
	}
	return numbers, b[8*n:], nil
}
