// SPDX-License-Identifier: MIT

package diana

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

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
	b := j.members(func(b []byte, e *enforced, _ limit.Outcome) []byte {
		return append(b, e.policy...)
	})
	if len(b) == 0 {
		return
	}
	h[policyField] = []string{string(b)}
	b = j.members(func(b []byte, e *enforced, o limit.Outcome) []byte {
		return appendLeft(append(b, e.quoted...), o)
	})
	h[limitField] = []string{string(b)}
}

// members lists what add appends for each rule that is told.
func (j *judgement) members(add func([]byte, *enforced, limit.Outcome) []byte) []byte {
	b := j.body[:0]
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if v.Rule.Mode == rule.Shadow || v.Remaining == limit.Unknown {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = add(b, &j.active.enforced[v.Rule.Index], v.Outcome)
	}
	j.body = b
	return b
}

// policyMember returns a rule's member of RateLimit-Policy.
func policyMember(r *rule.Rule) string {
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
