// SPDX-License-Identifier: MIT

package main

import "net/http"

// messages answers a request for a message, as Anthropic does.
func (p provider) messages(w http.ResponseWriter, r *http.Request) {
	q := readRequest(w, r)
	if q == nil {
		return
	}
	if q.Stream {
		p.streamMessage(w, r, q)
		return
	}
	if text, ok := p.write(r, q); ok {
		value := message(q, messageUsage(q, q.MaxTokens), object{"type": "text", "text": text})
		value["stop_reason"] = "max_tokens"
		reply(w, r, value)
	}
}

// streamMessage streams a message. Its first event has the usage so far, and the one before the last event
// has the final number of output tokens.
func (p provider) streamMessage(w http.ResponseWriter, r *http.Request, q *request) {
	b := newBody(w, r, "text/event-stream; charset=utf-8")
	defer b.close()
	send := func(kind string, event object) {
		event["type"] = kind
		b.event(kind, event)
	}
	send("message_start", object{"message": message(q, messageUsage(q, 1))})
	send("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	send("ping", object{})
	for range q.MaxTokens {
		if !p.wait(r, q) {
			return
		}
		send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": word}})
	}
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{
		"delta": object{"stop_reason": "max_tokens", "stop_sequence": nil},
		"usage": object{"output_tokens": q.MaxTokens},
	})
	send("message_stop", object{})
}

// message returns a message, or the beginning of one.
func message(q *request, usage object, content ...any) object {
	if content == nil {
		content = []any{}
	}
	return object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": q.Model, "content": content,
		"stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}
}

// messageUsage returns what a message has cost so far. The input tokens exclude the cached ones.
func messageUsage(q *request, output int) object {
	fresh, cached := q.prompt()
	return object{
		"input_tokens":                fresh,
		"cache_creation_input_tokens": 0,
		"cache_read_input_tokens":     cached,
		"output_tokens":               output,
	}
}
