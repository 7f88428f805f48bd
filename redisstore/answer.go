// SPDX-License-Identifier: MIT

package redisstore

import "github.com/diana-limiter/diana/limit"

// outcomeSize is how many numbers an outcome has.
const outcomeSize = 4

// read finds the outcomes of each group in the script's answer.
func (b *batch) read(reply []byte, short bool) error {
	numbers, values, uses, err := b.unpackAnswer(reply, short)
	if err != nil {
		return err
	}
	at := 2 // after the moment, and whether something has changed
	for i := range b.groups {
		g := &b.groups[i]
		if at >= len(numbers) {
			return errNoArray
		}
		g.granted = int32(numbers[at])
		at++
		g.whole = g.granted
		if g.debits && g.granted > 0 {
			if at >= len(numbers) || numbers[at] < 0 || numbers[at] > int64(g.granted) {
				return errNoArray
			}
			g.whole = int32(numbers[at])
			at++
		}
		size := g.size()
		if g.granted > 0 {
			g.before = int32(at)
			at += size * int(g.granted-g.whole+min(g.whole, 1))
		}
		if 0 <= g.granted && (g.granted < g.requests || g.peeks) {
			g.after = int32(at)
			at += size
		}
	}
	if at != len(numbers) {
		return errNoArray
	}
	b.reply = numbers
	if len(values) == 0 {
		return nil
	}
	if len(values) != len(b.keys) || len(uses) != 3*len(values) {
		return errNoArray
	}
	b.batcher.store.memory.note(b, values, uses)
	return nil
}

// unpackAnswer returns the numbers of an answer, and the states that it brings with their uses, if any.
func (b *batch) unpackAnswer(reply []byte, short bool) (numbers []int64, values []string, uses []int64, err error) {
	if short {
		return b.readShort(reply)
	}
	numbers, states, err := unpackNumbers(reply)
	if err != nil || len(states) == 0 {
		return numbers, nil, nil, err
	}
	if values, states, err = unpackTexts(states); err == nil {
		uses, err = unpack(states)
	}
	return numbers, values, uses, err
}

// size is how many numbers the outcomes of a request have.
func (g *group) size() int { return int(g.end-g.first) * outcomeSize }

// at returns the index in reply of the outcomes of the nth request, and how many equal requests were
// charged after these outcomes and before that request.
func (g *group) at(nth int32) (index int, before int64) {
	switch {
	case nth >= g.granted:
		return int(g.after), 0
	case nth >= g.whole:
		return int(g.before) + g.size()*int(nth-g.whole+min(g.whole, 1)), 0
	}
	return int(g.before), int64(nth)
}

// grantedOf returns how much the kth charge of a group takes in all its requests.
func (b *batch) grantedOf(g *group, k int) int64 {
	ch := b.charges[int(g.first)+k]
	if ch.cost >= 0 || ch.limit < 0 {
		return max(ch.cost, ^ch.cost) * int64(g.granted)
	}
	cost, n := ^ch.cost, int64(0)
	for nth := range g.granted { // a shadow may have room for only some of them
		if at, before := g.at(nth); b.outcomeAt(at+k*outcomeSize, before, cost).Allowed {
			n++
		}
	}
	return cost * n
}

// outcomeAt returns the outcome of a charge from its index in reply, after as many equal charges.
func (b *batch) outcomeAt(index int, before, cost int64) limit.Outcome {
	n := b.reply[index:]
	o := limit.Outcome{Allowed: n[0] == 1, Wait: n[1], Remaining: n[2], Reset: n[3]}
	o.Allowed = o.Allowed && (before == 0 || o.Remaining >= (before+1)*cost)
	o.Remaining = max(o.Remaining-before*cost, 0)
	return o
}

// outcome sets the outcomes of a request when its batch is done.
func (p entry) outcome(charges []limit.Charge) (bool, error) {
	if p.err != nil {
		return false, p.err
	}
	g := p.groups[p.group]
	if g.granted < 0 {
		return false, errForeign
	}
	allowed := p.nth < g.granted
	at, before := g.at(p.nth)
	for k := range charges {
		ch := &charges[k]
		o := p.outcomeAt(at+k*outcomeSize, before, ch.Cost)
		if allowed && o.Allowed {
			o.Remaining = max(o.Remaining-ch.Cost, 0)
		}
		ch.Outcome = o
		if !g.peeks {
			ch.At, ch.Ticket = p.reply[0], nil
		}
	}
	return allowed, nil
}
