// SPDX-License-Identifier: MIT

package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// seed is the key of the hash of actors. Without it a client cannot choose two actors with one hash. A process
// passes it to the one that takes over, which package hash/maphash does not allow.
//
// The hash is that of Go's maps on processors without AES: it multiplies 16 bytes at a time, and folds the product.
// Source: wyhash, https://github.com/wangyi-fudan/wyhash
type seed [4]uint64

const seedBytes = 32

// newSeed returns a random seed.
func newSeed() (s seed) {
	var b [seedBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return seedOf(b[:])
}

// seedOf returns the seed in seedBytes bytes.
func seedOf(b []byte) (s seed) {
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return s
}

// append appends the seed to b.
func (s *seed) append(b []byte) []byte {
	for _, word := range s {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return b
}

// hash returns the hash of a key.
func (s *seed) hash(key []byte) uint64 {
	n := uint64(len(key))
	h, k := s[0], s[0]
	for len(key) > 32 { // two independent products at a time
		h = fold(wordAt(key)^s[1], wordAt(key[8:])^h)
		k = fold(wordAt(key[16:])^s[2], wordAt(key[24:])^k)
		key = key[32:]
	}
	h ^= k ^ s[0]
	if len(key) > 16 {
		h = fold(wordAt(key)^s[1], wordAt(key[8:])^h)
	}
	var a, b uint64
	switch l := len(key); {
	case l >= 16:
		a, b = wordAt(key[l-16:]), wordAt(key[l-8:])
	case l >= 8:
		a, b = wordAt(key), wordAt(key[l-8:])
	case l >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(key)), uint64(binary.LittleEndian.Uint32(key[l-4:]))
	case l > 0:
		a = uint64(key[0])<<16 | uint64(key[l/2])<<8 | uint64(key[l-1])
	}
	return fold(s[3]^n, fold(a^s[2], b^h))
}

func wordAt(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// fold multiplies a and b, and folds the 128 bits of the product.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
