// SPDX-License-Identifier: MIT

package weblog

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
	upstreamField // until the upstream's header, in seconds
	envoyField    // the same in milliseconds
	bytesField
	costField
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
	{"upstream", []string{"upstream_header_time"}, upstreamField},
	{"upstream", []string{"response_duration"}, envoyField},
	{"bytes", []string{"body_bytes_sent", "bytes_sent", "bytes", "size"}, bytesField},
	{"cost", []string{"cost", "tokens", "total_tokens"}, costField},
	{"message", []string{"msg"}, messageField},
	{"account", []string{"account"}, accountField},
	{"device", []string{"device"}, deviceField},
}

// The messages of diana serve for requests that it answered and that it refused. A line on a refusal
// is for many requests, so it is not replayed.
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
