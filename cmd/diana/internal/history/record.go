// SPDX-License-Identifier: MIT

package history

import (
	"encoding/binary"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// record is an encoded request: numbers at fixed places, and then texts, each behind its length. The texts
// are method, path, host, remote and address, and then what a reads names. The outcomes that the request has met follow.
type record []byte

// The places of the numbers.
const (
	atSize     = 0
	atStatus   = 4 // uint16
	atFlags    = 6
	atHalved   = 7
	atCharged  = 8
	atDelayed  = 16 // how long it waited after its charge
	atRefunded = 24
	atSettled  = 32
	atReleased = 40
	atBytes    = 48
	atCost     = 56
	atHash     = 64 // of the client, by which shares are chosen
	atReads    = 72
	fixed      = 80
)

// The flags.
const (
	allowed = 1 << iota
	degraded
	ended
	inMilliseconds // the cost is the duration of the response
	inBytes        // the cost is the size of its body
)

// Longest texts. A longer one means the same to every rule.
const (
	longestMethod = 256
	longestHost   = 600
	longestValue  = 1024
)

func (r record) number(at int) int64       { return int64(binary.LittleEndian.Uint64(r[at:])) }
func (r record) set(at int, n int64)       { binary.LittleEndian.PutUint64(r[at:], uint64(n)) }
func (r record) at() int64                 { return r.number(atCharged) }
func (r record) reads() uint64             { return binary.LittleEndian.Uint64(r[atReads:]) }
func (r record) size() int                 { return int(binary.LittleEndian.Uint32(r[atSize:])) }
func (r record) has(flag byte) bool        { return r[atFlags]&flag != 0 }
func (r record) sampled(halved uint8) bool { return r.number(atHash)&(1<<halved-1) == 0 }

// encoder encodes one request at a time.
type encoder struct {
	ring *Ring
	text []byte
	key  []byte
}

// encode encodes a request. It reports false if the request does not belong to the share.
func (e *encoder) encode(d *diana.Decision, of *reads) bool {
	req := d.Request()
	client := of.set.Client(req)
	e.key = of.appendClient(e.key[:0], &client)
	hash := maphash.Bytes(e.ring.seed, e.key)
	if e.ring.outside(hash, d) {
		return false
	}
	e.text = append(e.text[:0], make([]byte, fixed)...)
	r := record(e.text)
	r.set(atCharged, e.ring.moment(d))
	if d.Delayed > 0 { // a request can also wait before its charge
		r.set(atDelayed, max(e.ring.options.Now().UnixMicro()-r.at(), 0))
	}
	r.set(atHash, int64(hash)) //nolint:gosec // bits
	r.set(atReads, int64(of.id))
	r[atHalved] = byte(e.ring.halved.Load())
	if d.Allowed {
		r[atFlags] |= allowed
	}
	if d.Degraded {
		r[atFlags] |= degraded
	}
	e.string(cut(req.Method, longestMethod))
	e.string(req.Path)
	host, remote := "", ""
	if req.HTTP != nil {
		host, remote = cut(req.HTTP.Host, longestHost), req.HTTP.RemoteAddr
	}
	e.string(host)
	e.address(of, req, remote)
	for i := range of.sources {
		e.value(of, of.sources[i].value(req))
	}
	for _, c := range of.costs {
		e.cost(of, c, req)
	}
	for _, name := range of.headers {
		e.header(req.HTTP, name)
	}
	e.met(d)
	binary.LittleEndian.PutUint32(e.text[atSize:], uint32(len(e.text))) //nolint:gosec // at most mostSize are kept
	return true
}

func cut(text string, n int) string { return text[:min(len(text), n)] }

// string appends a text behind its length.
func (e *encoder) string(text string) {
	e.text = binary.LittleEndian.AppendUint16(e.text, uint16(min(len(text), 1<<16-1))) //nolint:gosec // bounded
	e.text = append(e.text, cut(text, 1<<16-1)...)
}

// address appends the address of the peer and, if that is another one, of the client.
func (e *encoder) address(of *reads, req *rule.Request, remote string) {
	peer := plan.ClientIP(&rule.Identity{}, &rule.Request{HTTP: req.HTTP})
	client := of.set.ClientIP(req)
	shown := remote
	if peer.IsValid() {
		shown = e.ring.veil.address(peer, of).String()
	}
	e.string(cut(shown, longestMethod))
	if client == peer {
		e.string("")
		return
	}
	shown = rule.Unclear
	if client.IsValid() {
		shown = e.ring.veil.address(client, of).String()
	}
	e.string(shown)
}

// value appends what names a client.
func (e *encoder) value(of *reads, value string) {
	if value == "" || value == rule.Unclear || of.named[value] {
		e.string(value)
		return
	}
	if e.ring.veil == nil && len(value) <= longestValue {
		e.string(value)
		return
	}
	n := len(e.text)
	e.text = append(e.text, 0, 0)
	e.text = e.ring.veil.appendValue(e.text, value)
	binary.LittleEndian.PutUint16(e.text[n:], uint16(len(e.text)-n-2)) //nolint:gosec // short
}

// cost appends a cost that the request names, or nothing.
func (e *encoder) cost(of *reads, c costSource, req *rule.Request) {
	n := len(e.text)
	e.text = append(e.text, 0, 0)
	_, given := req.Costs[c.name]
	if given || c.rule.Cost.Header != "" && req.HTTP != nil && len(req.HTTP.Header[c.name]) > 0 {
		e.text = strconv.AppendInt(e.text, of.set.CostOf(c.rule, req), 10)
	}
	binary.LittleEndian.PutUint16(e.text[n:], uint16(len(e.text)-n-2)) //nolint:gosec // short
}

// header appends the lines of a field, which names no client.
func (e *encoder) header(r *http.Request, name string) {
	var lines []string
	if r != nil {
		lines = r.Header[name]
	}
	switch len(lines) {
	case 0:
		e.string("")
	case 1:
		e.string(cut(lines[0], longestValue))
	default:
		e.string(cut(strings.Join(lines, ","), longestValue))
	}
}

// met appends what the request has met under its rules: two numbers each. So the oldest records say what the requests
// have used that the ring has dropped.
func (e *encoder) met(d *diana.Decision) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		n := uint64(v.Remaining+1) << 1 //nolint:gosec // at least 0, because limit.Unknown is -1
		if v.Allowed {
			n |= 1
		}
		e.text = binary.AppendUvarint(e.text, n)
		wait := max(v.Wait, 0)
		if v.Reserved {
			wait = 0 // it is when to ask again, and says nothing about the counter
		}
		e.text = binary.AppendUvarint(e.text, uint64(wait)) //nolint:gosec // at least 0
	}
}
