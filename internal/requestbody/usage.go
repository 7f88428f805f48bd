// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"slices"
)

// UsagePointers are the JSON pointers that IncludeUsage reads. A body that has one of them twice is a
// mistake, because servers differ in which one counts.
var UsagePointers = []string{"/stream", "/stream_options/include_usage"}

// IncludeUsage returns the body of a request to OpenAI's API, changed so that a stream ends with its usage:
// an object with "stream": true gets "include_usage": true in its "stream_options". All other bytes stay as
// they are. It returns the body itself if there is nothing to change, or if "stream_options" is no object.
// The body must be JSON, with each of the UsagePointers at most once.
//
// The change is made in the text, because a decoded and encoded body would have other bytes.
func IncludeUsage(body []byte) []byte {
	const option = `"include_usage":true`
	root := members(body, 0)
	if stream, ok := root["stream"]; !ok || stream.in(body) != "true" {
		return body
	}
	options, ok := root["stream_options"]
	if !ok {
		return insert(body, bytes.IndexByte(body, '{')+1, `"stream_options":{`+option+`},`)
	}
	switch text := options.in(body); {
	case text == "null":
		return replace(body, options, "{"+option+"}")
	case text[0] != '{':
		return body
	}
	inside := members(body[options.from:options.to], options.from)
	switch usage, ok := inside["include_usage"]; {
	case !ok && len(inside) == 0:
		return insert(body, options.from+1, option)
	case !ok:
		return insert(body, options.from+1, option+",")
	case usage.in(body) == "false" || usage.in(body) == "null":
		return replace(body, usage, "true")
	}
	return body
}

// span is a part of a text.
type span struct{ from, to int }

func (s span) in(text []byte) string { return string(text[s.from:s.to]) }

// members returns where the values of an object are in a text, by their keys. at is added to each place. It
// returns none if the document in the text is no object.
func members(document []byte, at int) map[string]span {
	d := json.NewDecoder(bytes.NewReader(document))
	if first, _ := d.Token(); first != json.Delim('{') {
		return nil
	}
	found := map[string]span{}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil { // not JSON, or deeper than json allows
			return nil
		}
		end := at + int(d.InputOffset())
		name, _ := key.(string)
		found[name] = span{end - len(value), end}
	}
	return found
}

func insert(body []byte, at int, text string) []byte { return replace(body, span{at, at}, text) }

func replace(body []byte, s span, text string) []byte {
	return slices.Concat(body[:s.from], []byte(text), body[s.to:])
}
