// SPDX-License-Identifier: MIT

package respond

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// longestEvent is the longest event that a usageFilter holds back, in bytes. The usage is far shorter.
const longestEvent = 16 << 10

// usageFilter removes the event with the usage from a stream of OpenAI's API, because the client has not asked for it.
// It holds each event back until it is complete.
type usageFilter struct {
	event []byte
	line  int  // bytes of the present line
	long  bool // the event is too long to be one of usage, and passes on
	cr    bool // the last byte was a carriage return
	gone  bool // the last event was removed, and so is the rest of its CRLF
	off   bool // the response is no such stream
}

// begin is called with the header of the response.
func (f *usageFilter) begin(h http.Header) {
	f.off = !strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream") || h.Get("Content-Encoding") != "" || h.Get("Content-Length") != ""
}

// pass returns what the client gets of the next bytes.
func (f *usageFilter) pass(p []byte) (out []byte) {
	if f.off {
		return p
	}
	for _, c := range p {
		f.event = append(f.event, c)
		ends := c == '\n' || c == '\r'
		second := c == '\n' && f.cr
		f.cr = c == '\r'
		switch {
		case !ends:
			f.line++
			f.long = f.long || len(f.event) > longestEvent
		case second: // it belongs to the line that has ended
			if len(f.event) > 1 {
				break
			}
			if f.event = f.event[:0]; !f.gone {
				out = append(out, c)
			}
		case f.line > 0:
			f.line = 0
		default:
			out = append(out, f.end()...)
		}
		if f.long {
			out, f.event = append(out, f.event...), f.event[:0]
		}
	}
	return out
}

// end ends an event, and returns it unless it has the usage alone.
func (f *usageFilter) end() (event []byte) {
	if f.gone = !f.long && isUsage(f.event); !f.gone {
		event = bytes.Clone(f.event)
	}
	f.event, f.line, f.long = f.event[:0], 0, false
	return event
}

// rest returns what is held back at the end of the response.
func (f *usageFilter) rest() []byte { return f.event }

// isUsage reports whether an event has the usage, and an empty list of choices.
func isUsage(event []byte) bool {
	if !bytes.Contains(event, []byte(`"usage"`)) {
		return false
	}
	var data []byte
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, text...), '\n')
		}
	}
	var chunk struct {
		Choices *[]json.RawMessage
		Usage   map[string]any
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
}
