// SPDX-License-Identifier: MIT

package respond

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/diana-limiter/diana/internal/fields"
)

// A client of JSON-RPC, such as one of MCP, waits for an answer to each call, and takes another status than 200 for a
// broken connection. A language model reads the result of a tool, and not an error of the protocol.
//
// Source: https://www.jsonrpc.org/specification, https://modelcontextprotocol.io/specification

// codeLimited is the code of an error for too many requests, as proposed for MCP. codeInvalid is that of a request that
// is not valid.
const (
	codeLimited = -32023
	codeInvalid = -32600
)

// mostCalls is the largest number of calls of a batch that get an answer each. An answer is longer than a call.
const mostCalls = 1000

// call is a part of a request of JSON-RPC.
type call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// callsOf returns the calls of a body that wait for an answer, and whether they are a batch. It returns none for
// notifications, and for a text that is no request.
func callsOf(text []byte) (calls []call, batch bool) {
	text = bytes.TrimLeft(text, " \t\r\n")
	var all []call
	if batch = len(text) > 0 && text[0] == '['; batch {
		if json.Unmarshal(text, &all) != nil || len(all) > mostCalls {
			return nil, true
		}
	} else {
		var one call
		if json.Unmarshal(text, &one) != nil {
			return nil, false
		}
		all = []call{one}
	}
	for _, c := range all {
		if isID(c.ID) && c.Method != "" {
			calls = append(calls, c)
		}
	}
	return calls, batch
}

// isID reports whether a text in JSON can be the id of a call: a number or a string.
func isID(text []byte) bool {
	return len(text) > 0 && (text[0] == '"' || text[0] == '-' || '0' <= text[0] && text[0] <= '9')
}

// answer appends the answer to a refused call.
func (c *call) answer(b []byte, f *Refusal, message string) []byte {
	b = fmt.Appendf(b, `{"jsonrpc":"2.0","id":%s,`, c.ID)
	if c.Method == "tools/call" {
		return fmt.Appendf(b, `"result":{"content":[{"type":"text","text":%s}],"isError":true}}`, message)
	}
	b = fmt.Appendf(b, `"error":{"code":%d,"message":%s`, codeLimited, message)
	if !f.Never {
		b = fmt.Appendf(b, `,"data":{"retryAfter":%d}`, fields.Seconds(f.RetryAfter))
	}
	return append(b, "}}"...)
}

// serveJSONRPC answers the calls of a refused request. It returns false, and writes nothing, if no call waits for an
// answer.
func (f *Refusal) serveJSONRPC(w http.ResponseWriter, r *http.Request) bool {
	if r == nil || r.Method != http.MethodPost || f.Bodies == nil {
		return false
	}
	body := f.Bodies.hold(r)
	if body == nil {
		return false
	}
	defer f.Bodies.Release(r.Body)
	if body.mistake != nil {
		return false
	}
	calls, batch := callsOf(body.data)
	if len(calls) == 0 {
		return false
	}
	message := string(appendJSON(nil, f.message()))
	var b []byte
	for i := range calls {
		switch {
		case i > 0:
			b = append(b, ',')
		case batch:
			b = append(b, '[')
		}
		b = calls[i].answer(b, f, message)
	}
	if batch {
		b = append(b, ']')
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(cmp.Or(f.CallStatus, http.StatusOK))
	_, _ = w.Write(append(b, '\n')) // a client that has disconnected needs no response
	return true
}

// rejectJSONRPC answers a request that cannot be read.
func rejectJSONRPC(w http.ResponseWriter, status int, message string) {
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, []string{"application/json"}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":%d,\"message\":%s}}\n", codeInvalid, appendJSON(nil, message))
}
