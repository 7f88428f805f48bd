// SPDX-License-Identifier: MIT

package diana

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The fields of draft-ietf-httpapi-ratelimit-headers-11, in the spelling that
// net/http looks them up by.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"
)

// setFields sets the RateLimit fields: one member for each rule that judged the
// request. Shadow rules are not told, nor rules that have not been asked: those that are
// open for want of Redis, and those in Redis when one of this process has refused.
func (j *judgement) setFields(h http.Header) {
	which, left := j.which[:0], j.body[:0]
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if v.Rule.Mode == rule.Shadow || v.Remaining == limit.Unknown {
			continue
		}
		if len(left) > 0 {
			left = append(left, ", "...)
		}
		which = append(which, v.compiled.Slot)
		outcome := v.Outcome
		if v.Rule.Limit.N == 0 {
			outcome.Reset = 0 // no time brings more
		}
		left = appendLeft(append(left, j.active.enforced[v.compiled.Index].quoted...), outcome)
	}
	j.which, j.body = which, left
	if len(which) > 0 {
		h[policyField] = j.active.policies.of(which, j.active.enforced)
		h[limitField] = j.values.of(left)
	}
}

// values makes values of fields: a list of one string each. Some of them share one
// allocation for the lists, and others one for the texts, which live as long as the last
// of them; so they are not many.
type values struct {
	lists []string
	texts strings.Builder
}

func (v *values) of(text []byte) []string {
	if len(v.lists) == 0 {
		v.lists = make([]string, 16)
	}
	if v.texts.Cap()-v.texts.Len() < len(text) { // it would move, and leave the others behind
		v.texts.Reset()
		v.texts.Grow(max(1024, len(text)))
	}
	from := v.texts.Len()
	v.texts.Write(text)
	one := v.lists[:1:1]
	one[0], v.lists = v.texts.String()[from:], v.lists[1:]
	return one
}

// policies are the values of RateLimit-Policy that have been sent: they change with the
// configuration alone, and many requests are judged by the same rules.
type policies struct {
	mu    sync.Mutex // held to add one
	known atomic.Pointer[map[string][]string]
}

// mostPolicies bounds how many are kept. Requests lead to more sets of rules only where
// there are very many rules, or limits in overrides.
const mostPolicies = 4096

// of returns the field's value for some rules. It is shared, and has no room to append.
func (p *policies) of(which []int, rules []enforced) []string {
	var room [32]byte
	name := room[:0]
	for _, i := range which {
		name = binary.AppendUvarint(name, uint64(i))
	}
	known := p.known.Load()
	if known != nil {
		if v, ok := (*known)[string(name)]; ok {
			return v
		}
	}
	var members []string
	for _, i := range which {
		members = append(members, rules[i].policy)
	}
	value := []string{strings.Join(members, ", ")}
	if known != nil && len(*known) >= mostPolicies {
		return value
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	more := map[string][]string{string(name): value}
	if known = p.known.Load(); known != nil {
		if len(*known) >= mostPolicies {
			return value
		}
		maps.Copy(more, *known)
	}
	p.known.Store(&more)
	return value
}

// policyMember returns a rule's member of RateLimit-Policy.
func policyMember(r *plan.Rule) string {
	m := quote(r.Name) + ";q=" + strconv.FormatInt(r.Limit.N, 10)
	switch {
	case r.Algorithm.Held:
		m += `;qu="concurrent-requests"`
	case r.Limit.Unit >= time.Second: // whole seconds only; shorter windows are not told
		m += ";w=" + strconv.FormatInt(seconds(r.Limit.Unit), 10)
	}
	return m
}

// appendLeft appends the parameters of a member of RateLimit.
func appendLeft(b []byte, o limit.Outcome) []byte {
	b = strconv.AppendInt(append(b, ";r="...), o.Remaining, 10)
	if o.Reset > 0 {
		b = strconv.AppendInt(append(b, ";t="...), seconds(time.Duration(o.Reset)*time.Microsecond), 10)
	}
	return b
}

// quote returns text as a String of structured fields (RFC 9651, section 3.3.3),
// which is ASCII only: other bytes, and the percent sign, are percent-encoded.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~' || c == '%':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func jsonString(text string) string {
	b, _ := json.Marshal(text) // a string can always be marshalled
	return string(b)
}
