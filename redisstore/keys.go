// SPDX-License-Identifier: MIT

package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"

	"github.com/diana-limiter/diana/limit"
)

// keyspace names a Store's keys in Redis. Each has the tag of a batcher behind the prefix.
type keyspace struct {
	prefix string
	store  int64 // Store.id
}

// hash is 128 bits of a hash of an actor's counter, which no two actors share and no client can
// choose.
type hash [16]byte

func hashOf(ch *limit.Charge) hash {
	var room [256]byte
	sum := sha256.Sum256(append(append(room[:0], ch.Counters.(*counters).sum[:]...), ch.Key...))
	return hash(sum[:])
}

// hashesOf appends the hashes of charges to room.
func hashesOf(charges []limit.Charge, room []hash) []hash {
	for i := range charges {
		room = append(room, hashOf(&charges[i]))
	}
	return room
}

// counter returns the key of an actor's counter.
func (s keyspace) counter(tag string, h hash) string { return string(s.appendCounter(nil, tag, h)) }

func (s keyspace) appendCounter(b []byte, tag string, h hash) []byte {
	b = append(b, s.prefix...)
	b = append(append(b, ':'), tag...)
	return base64.RawURLEncoding.AppendEncode(b, h[:])
}

// counters appends the keys of counters to names. They share one text, which saves allocations.
func (s keyspace) counters(names []string, tag string, keys []key) []string {
	var b []byte
	for i := range keys {
		b = s.appendCounter(b, tag, keys[i].hash)
		if i == 0 {
			b = slices.Grow(b, len(b)*(len(keys)-1))
		}
	}
	text := string(b)
	for i := range keys {
		size := len(text) / len(keys)
		names = append(names, text[i*size:(i+1)*size])
	}
	return names
}

// gateways returns the key of the set of gateways.
func (s keyspace) gateways(tag string) string { return s.prefix + ":" + tag + "gateways" }

// receipts returns the key of the receipts of a batcher.
func (s keyspace) receipts(tag string) string {
	return s.prefix + ":" + tag + "calls:" + strconv.FormatInt(s.store, 36)
}

// epoch returns the key of the epoch of a batcher's counters.
func (s keyspace) epoch(tag string) string { return s.prefix + ":" + tag + "epoch" }

// tags returns the key of the number of tags.
func (s keyspace) tags(tag string) string { return s.prefix + ":" + tag + "tags" }

// resets returns the key of the set of resets.
func (s keyspace) resets(tag string) string { return s.prefix + ":" + tag + "resets" }

// minute returns the key of what all gateways have decided in a minute since 1970.
func (s keyspace) minute(tag string, minute int64) string {
	return s.prefix + ":" + tag + "minute:" + strconv.FormatInt(minute, 10)
}
