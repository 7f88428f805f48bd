// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua source
	"encoding/binary"
	"fmt"
	"unique"

	"github.com/diana-limiter/diana/limit"
)

// A reset deletes a key, which is enough for Redis. But each gateway also remembers something
// of the actor: refusals, debts, and what the caller of this package keeps. Therefore Reset
// adds the actor to a set in Redis, and every gateway reads the set at its heartbeat:
//
//	gateway A   Reset: delete the key, note the reset, forget
//	Redis                              [reset]
//	gateway B   heartbeat                  '---> heartbeat: forget
//
// So all gateways have forgotten the actor within a second. The set has names and actors in
// plain text, for a minute: a hash would not tell another gateway what to forget. A gateway
// that could not reach Redis reads the set before it debits what it has allowed meanwhile.
//
// Rejected: publish and subscribe, which needs a connection of its own and loses messages.

//go:embed resets.lua
var resetsLua string

var noteResetScript = plainScript(resetsLua + "note_reset(KEYS[1], ARGV[1])\nreturn ''\n")

// resetNote is a reset as a gateway learns of it.
type resetNote struct {
	store int64 // that made it
	actor
	at int64 // by Redis' clock
}

// resetMember returns what the set in Redis has of a reset.
func resetMember(store int64, a actor) []byte {
	name := a.name.Value()
	b := binary.BigEndian.AppendUint64(nil, uint64(store))
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	return append(append(b, name...), a.key...)
}

// parseReset reads a member of the set. It reports false if that is not one of ours.
func parseReset(member string, at int64) (n resetNote, ok bool) {
	const header = 8 + 4
	if len(member) < header {
		return n, false
	}
	b, rest := []byte(member[:header]), member[header:]
	size := int(binary.BigEndian.Uint32(b[8:]))
	if size > len(rest) {
		return n, false
	}
	n = resetNote{store: int64(binary.BigEndian.Uint64(b)), at: at}
	n.actor = actor{unique.Make(rest[:size]), rest[size:]}
	return n, true
}

// Reset implements limit.Store. Concurrency slots stay held, so it changes nothing for those.
// Requests that wait keep their scheduled times. Each gateway keeps its own requests apart, but
// until those that wait have proceeded, a request of another gateway can come between two.
//
// The error is ErrUnavailable, or ctx's.
func (s *Store) Reset(ctx context.Context, h any, key []byte) error {
	c := h.(*counters)
	if c.held {
		return nil
	}
	if !s.Up() || s.gateway.closing.Load() {
		return ErrUnavailable
	}
	a := actor{c.name, string(key)}
	ch := limit.Charge{Counters: c, Key: []byte(a.key)}
	b := s.batchers.batcher(&ch).add(func(b *batch) { b.reset(&ch) })
	if b == nil {
		return ErrUnavailable
	}
	if err := b.wait(ctx); err != nil {
		return err
	}
	if b.err != nil {
		return b.err
	}
	s.forget(resetNote{store: s.id, actor: a, at: b.reply[0]})
	ctx, cancel := context.WithTimeout(ctx, max(s.requestTimeout(), doubtProbe))
	defer cancel()
	set := []string{s.keys.resets(s.batchers[0].tag)}
	if _, err := s.link.call(ctx, noteResetScript, set, resetMember(s.id, a)); err != nil {
		return fmt.Errorf("the other gateways do not learn of the reset: %w", err)
	}
	return nil
}

// forget removes what this gateway knows of an actor that was reset.
func (s *Store) forget(n resetNote) {
	s.debts.drop(n.actor, n.at)
	s.memory.forget(n.actor, n.at)
	s.refused.forget(n.actor)
	s.schedule.forget(n.actor)
	if s.options.Reset != nil {
		s.options.Reset(n.name.Value(), []byte(n.key))
	}
}
