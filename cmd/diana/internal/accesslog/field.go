// SPDX-License-Identifier: MIT

package accesslog

import (
	"bytes"
	"strings"
	"time"
)

// field is the meaning of a key.
type field int

const (
	unknownField field = iota
	timeField          // when the line was written; with a duration the request came that much earlier
	startField         // when the request came
	lineField          // the first line of the request
	methodField
	targetField
	queryField
	remoteField
	hostField
	statusField
	durationField // in seconds, or text with a unit
	millisField   // a duration in milliseconds
	messageField
	accountField
	deviceField
	fieldCount
)

// Keys has the known keys, in lower case, with _ for - and without a leading @. If a line has several
// keys of a row, the first one in the row is used. Besides these keys, "request", "req" and "http"
// may be objects with such keys, and "headers", "request_headers" and "req_headers" objects with
// headers. http_NAME and NAME are headers, too.
var Keys = []struct {
	What string
	Keys []string
	f    field
}{
	{"time", []string{"time", "ts", "timestamp", "time_iso8601", "time_local", "msec"}, timeField},
	{"start", []string{"start_time", "start"}, startField},
	{"request line", []string{"request", "request_line"}, lineField},
	{"method", []string{"method", "request_method", "http_method", "verb"}, methodField},
	{"path", []string{"request_uri", "uri", "target", "url", "path", "request_path"}, targetField},
	{"query", []string{"args", "query", "query_string"}, queryField},
	{"address", []string{"remote_addr", "remote_ip", "client_ip", "client", "ip"}, remoteField},
	{"host", []string{"host", "http_host"}, hostField},
	{"status", []string{"status", "status_code"}, statusField},
	{"duration", []string{"request_time", "duration", "latency"}, durationField},
	{"duration", []string{"duration_ms", "latency_ms"}, millisField},
	{"message", []string{"msg"}, messageField},
	{"account", []string{"account"}, accountField},
	{"device", []string{"device"}, deviceField},
}

// The messages of diana serve for requests that it answered and that it refused. A line on a refusal
// stands for many requests, so it is not replayed.
const (
	ownRequest = "request"
	ownRefusal = "refusal"
)

type keyMeaning struct {
	field field
	rank  int8 // the key with the smallest rank is used
}

var keyMeanings = func() map[string]keyMeaning {
	m := map[string]keyMeaning{}
	for _, row := range Keys {
		for i, key := range row.Keys {
			m[key] = keyMeaning{row.f, int8(i)}
		}
	}
	return m
}()

// found is the known values of a line of keys and values.
type found struct {
	values [fieldCount]string
	ranks  [fieldCount]int8 // of values, + 1; 0: none
	key    [64]byte
}

func (f *found) reset() { f.ranks = [fieldCount]int8{} }

func (f *found) has(what field) bool { return f.ranks[what] > 0 }

// normal returns a key in the spelling of Keys, or "" if it is longer than all of them. The result
// is valid until the next call.
func (f *found) normal(key string) []byte {
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
func (p *parser) put(key []byte, value string, inHeaders bool, e *Entry) {
	if value == "-" { // nginx writes it for a missing value
		value = ""
	}
	m := keyMeanings[string(key)]
	if f := &p.found; !inHeaders && (value != "" || m.field == lineField) && (f.ranks[m.field] == 0 || m.rank < f.ranks[m.field]-1) {
		f.values[m.field], f.ranks[m.field] = value, m.rank+1
	}
	if len(p.names.byKey) == 0 || value == "" {
		return
	}
	i, ok := p.names.byKey[string(key)]
	if !ok {
		i, ok = p.names.byKey[string(bytes.TrimPrefix(key, []byte("http_")))]
	}
	if ok && e.Headers[i] == "" {
		e.Headers[i] = value
	}
}

// entry fills in e.
func (p *parser) entry(e *Entry) (kind, string) {
	f := &p.found
	if f.values[messageField] == ownRefusal && f.has(messageField) {
		return other, ""
	}
	if k, why := f.request(e); k != request {
		return k, why
	}
	f.details(e)
	return p.start(e)
}

// request fills in the method and the URL of e.
func (f *found) request(e *Entry) (kind, string) {
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
	case !isToken(e.Method):
		return broken, "no method of a request, expected a key such as method or request"
	}
	return request, ""
}

// details fills in the client, the status and the duration of e.
func (f *found) details(e *Entry) {
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
	switch {
	case f.has(durationField):
		e.Duration = durationOf(f.values[durationField], time.Second)
	case f.has(millisField):
		e.Duration = durationOf(f.values[millisField], time.Millisecond)
	}
}

// start fills in when the request came. A line with a time was written when the request ended.
func (p *parser) start(e *Entry) (kind, string) {
	f := &p.found
	when := startField
	if !f.has(when) {
		when = timeField
	}
	if !f.has(when) {
		return broken, "no time, expected a key such as time, ts or timestamp"
	}
	var ok bool
	if e.Start, e.Whole, ok = p.when.any(f.values[when]); !ok {
		return broken, "not a time, expected one such as 2006-01-02T15:04:05Z, or seconds since 1970"
	}
	if when == timeField && e.Duration > 0 {
		e.Start = max(e.Start-e.Duration, earliest)
		e.Whole = e.Whole && e.Duration%1_000_000 == 0
	}
	return request, ""
}
