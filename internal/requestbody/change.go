// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/jsonscan"
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
	if jsonscan.New(0).ScanAll(body) != nil { // an optional Query accepts what is no JSON
		return body
	}
	root := members(body, 0)
	stream, ok := root["stream"]
	if text := string(stream.in(body)); !ok || text == "false" || text == "null" || forResponses(root, body) {
		return body
	}
	return put(body, 0, len(body), []string{"stream_options", "include_usage"}, "true")
}

// SetMost returns the body of a request with n as its most tokens of output, if it names none of them. All other
// bytes stay as they are. The result is the body itself if there is nothing to change. Read must accept the body
// with d.
func SetMost(body []byte, d *Demand) []byte {
	if !d.Set {
		return body
	}
	for _, pointer := range d.Names {
		if _, ok := find(body, split(pointer)); ok {
			return body
		}
	}
	first := d.Names[0]
	if d.Auto {
		first = formatOf(d.Format).first(body)
	}
	return put(body, 0, len(body), split(first), strconv.FormatInt(d.Or, 10))
}

// Replace returns a body with other values by their JSON pointers, none of which is within another. An object gets a
// member that it lacks. All other bytes stay as they are. ok is false, and the body unchanged, if it cannot be changed
// so that all servers read the new values, or has them already.
func Replace(body []byte, with map[string]any) (changed []byte, ok bool) {
	var pointers []string
	for pointer := range with {
		pointers = append(pointers, pointer)
	}
	slices.Sort(pointers) // so that the same body always becomes the same
	if _, err := values(body, pointers); err != nil {
		return body, false
	}
	changed = body
	for _, pointer := range pointers {
		keys := split(pointer)
		for i := range keys {
			if parent, found := find(body, keys[:i]); found && members(body[parent.from:parent.to], parent.from) == nil {
				return body, false
			}
		}
		text, err := json.Marshal(with[pointer])
		if err != nil || folded(body, keys) {
			return body, false
		}
		changed = put(changed, 0, len(changed), keys, string(text))
	}
	return changed, !bytes.Equal(changed, body)
}

// split returns the keys of a JSON pointer.
func split(pointer string) []string {
	keys := strings.Split(pointer, "/")[1:]
	for i, key := range keys {
		keys[i] = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
	}
	return keys
}

// find returns where the value at some keys is in a body.
func find(body []byte, keys []string) (at span, ok bool) {
	at = span{0, len(body)}
	for _, key := range keys {
		if at, ok = members(body[at.from:at.to], at.from)[key]; !ok {
			return at, false
		}
	}
	return at, true
}

// put returns a body with a value at some keys of the object between from and to. Any other value on the
// way becomes an object.
func put(body []byte, from, to int, keys []string, text string) []byte {
	object := members(body[from:to], from)
	if object == nil {
		return replace(body, span{from, to}, "{"+member(keys, text)+"}")
	}
	switch at, ok := object[keys[0]]; {
	case !ok && len(object) > 0:
		text = member(keys, text) + ","
	case !ok:
		text = member(keys, text)
	case len(keys) > 1:
		return put(body, at.from, at.to, keys[1:], text)
	case string(at.in(body)) == text:
		return body
	default:
		return replace(body, at, text)
	}
	begin := from + bytes.IndexByte(body[from:to], '{') + 1
	return replace(body, span{begin, begin}, text)
}

// member returns the text of a member of an object, with an object for each key but the last.
func member(keys []string, text string) string {
	key, _ := json.Marshal(keys[0])
	if len(keys) > 1 {
		text = "{" + member(keys[1:], text) + "}"
	}
	return string(key) + ":" + text
}

// forResponses reports whether a body is for the Responses API, and for no other. Then it has an input or a stored
// prompt. It has no messages, as for a chat, and no prompt in text, as for a completion.
func forResponses(root map[string]span, body []byte) bool {
	_, messages := root["messages"]
	_, input := root["input"]
	prompt, prompted := root["prompt"]
	stored := prompted && prompt.in(body)[0] == '{'
	return !messages && (stored || input && !prompted)
}

func replace(body []byte, s span, text string) []byte {
	return slices.Concat(body[:s.from], []byte(text), body[s.to:])
}
