// SPDX-License-Identifier: MIT

package weblog

import (
	"bytes"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/httptext"
)

// fields is what a line of keys and values says: the values of the known keys, and headers.
type fields struct {
	values [fieldCount]string
	ranks  [fieldCount]int8 // of values, + 1; 0: none
	key    [64]byte

	names   *Names
	headers []string // by names.Headers
}

// reset forgets the previous line. The headers of the next one are put into headers.
func (f *fields) reset(names *Names, headers []string) {
	f.ranks = [fieldCount]int8{}
	f.names, f.headers = names, headers
}

func (f *fields) has(what field) bool { return f.ranks[what] > 0 }

// normal returns a key in the spelling of Keys, or "" if it is longer than all of them. The result
// is valid until the next call.
func (f *fields) normal(key string) []byte {
	key = strings.TrimPrefix(key, "@")
	if len(key) > len(f.key) {
		return nil
	}
	b := f.key[:len(key)]
	for i := range len(key) {
		c := key[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '-':
			c = '_'
		}
		b[i] = c
	}
	return b
}

// put remembers the value of a key, which normal has returned, if the key is known.
func (f *fields) put(key []byte, value string, inHeaders bool) {
	if value == "-" { // nginx writes it for a missing value
		value = ""
	}
	m := keyMeanings[string(key)]
	if !inHeaders && (value != "" || m.field == lineField) && (f.ranks[m.field] == 0 || m.rank < f.ranks[m.field]-1) {
		f.values[m.field], f.ranks[m.field] = value, m.rank+1
	}
	if len(f.names.byKey) == 0 || value == "" {
		return
	}
	i, ok := f.names.byKey[string(key)]
	if !ok {
		i, ok = f.names.byKey[string(bytes.TrimPrefix(key, []byte("http_")))]
	}
	if ok && f.headers[i] == "" {
		f.headers[i] = value
	}
}

// entry fills in e, except its headers.
func (f *fields) entry(when *clock, e *Entry) (kind, string) {
	if f.values[messageField] == ownRefusal && f.has(messageField) {
		return other, ""
	}
	if k, why := f.request(e); k != request {
		return k, why
	}
	f.details(e)
	return f.start(when, e)
}

// request fills in the method and the URL of e.
func (f *fields) request(e *Entry) (kind, string) {
	if f.has(lineField) && (!f.has(targetField) || !f.has(methodField)) {
		if e.requestLine(f.values[lineField]) == other {
			return other, ""
		}
	}
	if f.has(methodField) {
		e.Method = f.values[methodField]
	}
	if f.has(targetField) {
		e.Target = f.values[targetField]
	}
	if f.has(queryField) && !strings.Contains(e.Target, "?") {
		e.Query = strings.TrimPrefix(f.values[queryField], "?")
	}
	switch {
	case e.Target == "" && f.has(messageField): // a program that logs other events too
		return other, ""
	case e.Target == "":
		return broken, "no path of a request, expected a key such as path, uri or request"
	case !httptext.IsToken(e.Method):
		return broken, "no method of a request, expected a key such as method or request"
	}
	return request, ""
}

// details fills in the client, the status and the duration of e.
func (f *fields) details(e *Entry) {
	if f.has(remoteField) {
		e.Remote = f.values[remoteField]
	}
	if f.has(hostField) {
		e.Host = f.values[hostField]
	}
	if f.has(messageField) && f.values[messageField] == ownRequest {
		e.Own = true
		if f.has(accountField) {
			e.Account = f.values[accountField]
		}
		if f.has(deviceField) {
			e.Device = f.values[deviceField]
		}
	}
	if f.has(statusField) && len(f.values[statusField]) == 3 {
		e.Status, _ = digits(f.values[statusField])
	}
	e.Bytes, e.Cost = f.number(bytesField), f.number(costField)
	switch {
	case f.has(durationField):
		e.Duration = durationOf(f.values[durationField], time.Second)
	case f.has(millisField):
		e.Duration = durationOf(f.values[millisField], time.Millisecond)
	}
	switch {
	case f.has(upstreamField): // nginx writes a time for each upstream that it has tried
		tried := f.values[upstreamField]
		e.StatusAfter = durationOf(tried[strings.LastIndexAny(tried, " ")+1:], time.Second)
	case f.has(envoyField):
		e.StatusAfter = durationOf(f.values[envoyField], time.Millisecond)
	}
	if e.StatusAfter == 0 {
		e.StatusAfter = 1 // 0 means the end
	}
}

// number returns a whole number, or Unknown.
func (f *fields) number(of field) int64 {
	if n, ok := httptext.Whole(f.values[of]); ok && f.has(of) {
		return n
	}
	return Unknown
}

// start fills in when the request came. A line with a time was written when the request ended.
func (f *fields) start(when *clock, e *Entry) (kind, string) {
	of := startField
	if !f.has(of) {
		of = timeField
	}
	if !f.has(of) {
		return broken, "no time, expected a key such as time, ts or timestamp"
	}
	var ok bool
	if e.Start, e.Whole, ok = when.any(f.values[of]); !ok {
		return broken, "not a time, expected one such as 2006-01-02T15:04:05Z, or seconds since 1970"
	}
	if of == timeField && e.Duration > 0 {
		e.Start = max(e.Start-e.Duration, earliest)
		e.Whole = e.Whole && e.Duration%1_000_000 == 0
	}
	return request, ""
}
