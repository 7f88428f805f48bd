// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"slices"
)

// UsagePointers are the JSON pointers that IncludeUsage reads. A body that has one of them twice is a
// mistake, because servers differ in which one counts. Another letter case is one too, because some servers
// read it.
var UsagePointers = []string{"/stream", "/stream_options", "/stream_options/include_usage"}

// IncludeUsage returns the body of a request to OpenAI's API, changed so that a stream ends with its usage.
// An object that asks for a stream gets "include_usage": true in its "stream_options". A "stream" of 1 or
// "true" asks for one too, because lenient servers read it so. All other bytes stay as they are. The
// result is the body itself if there is nothing to change. Read must accept the body with the UsagePointers.
//
// A request to the Responses API stays as it is, because this API always reports the usage and rejects the option.
//
// The change is made in the text, because a decoded and encoded body would have other bytes.
func IncludeUsage(body []byte) []byte {
	const option = `"include_usage":true`
	root := members(body, 0)
	stream, ok := root["stream"]
	if text := stream.in(body); !ok || text == "false" || text == "null" || forResponses(body, root) {
		return body
	}
	options, ok := root["stream_options"]
	switch {
	case !ok:
		return insert(body, bytes.IndexByte(body, '{')+1, `"stream_options":{`+option+`},`)
	case options.in(body)[0] != '{':
		return replace(body, options, "{"+option+"}")
	}
	inside := members(body[options.from:options.to], options.from)
	switch usage, ok := inside["include_usage"]; {
	case !ok && len(inside) == 0:
		return insert(body, options.from+1, option)
	case !ok:
		return insert(body, options.from+1, option+",")
	case usage.in(body) != "true":
		return replace(body, usage, "true")
	}
	return body
}

// forResponses reports whether a body is for the Responses API, and for no other. Then it has an input or a stored
// prompt. It has no messages, as for a chat, and no prompt in text, as for a completion.
func forResponses(body []byte, root map[string]span) bool {
	_, messages := root["messages"]
	_, input := root["input"]
	prompt, prompted := root["prompt"]
	stored := prompted && prompt.in(body)[0] == '{'
	return !messages && (stored || input && !prompted)
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
