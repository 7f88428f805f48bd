// SPDX-License-Identifier: MIT

package history

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"net/netip"
)

// veil hides who a client is. Equal clients stay equal, and different ones different. Its key and its seed are random
// and never leave the process. A nil veil hides nothing.
type veil struct {
	key  [32]byte
	seed maphash.Seed // for addresses, whose rounds need a fast hash
}

func newVeil() *veil {
	v := &veil{seed: maphash.MakeSeed()}
	_, _ = rand.Read(v.key[:]) // never fails
	return v
}

// hashedPrefix marks a value that is hidden.
const hashedPrefix = "hash:"

// appendValue appends the name of a hidden value.
func (v *veil) appendValue(b []byte, value string) []byte {
	var room [96]byte
	text := room[:0]
	if v != nil {
		text = append(text, v.key[:]...)
	}
	sum := sha256.Sum256(append(text, value...))
	return hex.AppendEncode(append(b, hashedPrefix...), sum[:12])
}

// address returns the hidden address of an address. It is in the same networks, as far as a configuration
// names them, and no other address has it. In a network of a single address that is the address itself.
//
// Rejected: a hash of the address. Two clients of a small network could get the same one.
func (v *veil) address(ip netip.Addr, of *reads) netip.Addr {
	if v == nil {
		return ip
	}
	within := of.smallest(ip)
	for {
		// An address that is hidden by one of a smaller network is hidden again. That ends, because a
		// permutation comes back to ip at last.
		if ip = v.permute(ip, max(within.Bits(), 0)); of.smallest(ip) == within {
			return ip
		}
	}
}

// permute replaces the bits of an address behind a prefix. It is a permutation of these addresses. Addresses
// of the same /64 stay together, because rules count by that.
func (v *veil) permute(ip netip.Addr, prefix int) netip.Addr {
	if ip.Is4() {
		b := ip.As4()
		binary.BigEndian.PutUint32(b[:], uint32(v.mix(uint64(binary.BigEndian.Uint32(b[:])), 32-prefix, 4))) //nolint:gosec // 32 bits
		return netip.AddrFrom4(b)
	}
	b := ip.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	lowBits := min(128-prefix, 64)
	if prefix < 64 {
		high = v.mix(high, 64-prefix, 6)
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], v.mix(low, lowBits, high))
	return netip.AddrFrom16(b)
}

// mix permutes the last bits of n, by a network of Feistel whose halves take turns. tweak chooses one of many
// permutations: one for IPv4, one for the networks of IPv6, and one for each /64.
func (v *veil) mix(n uint64, bits int, tweak uint64) uint64 {
	if bits == 0 {
		return n
	}
	kept := n &^ (1<<bits - 1) // for 64 bits it is 0
	n &^= kept
	low := bits / 2
	high := bits - low
	l, r := n>>low, n&(1<<low-1)
	for round := range uint64(rounds) {
		if round%2 == 0 {
			l ^= maphash.Comparable(v.seed, [...]uint64{round, tweak, kept, r}) & (1<<high - 1)
		} else {
			r ^= maphash.Comparable(v.seed, [...]uint64{round, tweak, kept, l}) & (1<<low - 1)
		}
	}
	return kept | l<<low | r
}

// rounds is twice the four that make a permutation look random (Luby and Rackoff, 1988), because halves can be small.
const rounds = 8
