// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
)

// keyspace names a Store's keys in Redis. Each has the tag of a batcher behind the prefix.
type keyspace struct {
	prefix string
	store  int64 // Store.id
}

// counter returns the key of an actor's counter: 128 bits of a hash, which no two actors share and
// no client can choose.
func (s keyspace) counter(tag string, k key) string {
	var room [256]byte
	sum := sha256.Sum256(append(append(room[:0], k.c.sum[:]...), k.key...))
	b := append(room[:0], s.prefix...)
	b = append(append(b, ':'), tag...)
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:16]))
}

// gateways returns the key of the set of gateways.
func (s keyspace) gateways(tag string) string { return s.prefix + ":" + tag + "gateways" }

// receipts returns the key of the receipts of a batcher.
func (s keyspace) receipts(tag string) string {
	return s.prefix + ":" + tag + "calls:" + strconv.FormatInt(s.store, 36)
}

// resets returns the key of the set of resets.
func (s keyspace) resets(tag string) string { return s.prefix + ":" + tag + "resets" }
