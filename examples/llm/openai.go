// SPDX-License-Identifier: MIT

package main

import "net/http"

// chat answers a request for a chat completion, as OpenAI and Azure do.
func (p provider) chat(w http.ResponseWriter, r *http.Request) {
	q := readRequest(w, r)
	if q == nil {
		return
	}
	if q.Stream {
		p.streamChat(w, r, q)
		return
	}
	if text, ok := p.write(r, q); ok {
		value := completion(q, "chat.completion", object{
			"index": 0, "finish_reason": "length", "logprobs": nil,
			"message": object{"role": "assistant", "content": text, "refusal": nil},
		})
		value["usage"] = chatUsage(q)
		reply(w, r, value)
	}
}

// streamChat streams a completion. Without include_usage, a stream does not say what it has cost.
func (p provider) streamChat(w http.ResponseWriter, r *http.Request, q *request) {
	b := newBody(w, r, "text/event-stream; charset=utf-8")
	defer b.close()
	send := func(choices ...any) {
		chunk := completion(q, "chat.completion.chunk", choices...)
		if q.StreamOptions.IncludeUsage {
			chunk["usage"] = nil
			if len(choices) == 0 {
				chunk["usage"] = chatUsage(q)
			}
		}
		b.event("", chunk)
	}
	choice := func(delta object, finish any) object {
		return object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}
	}
	send(choice(object{"role": "assistant", "content": ""}, nil))
	for range q.MaxTokens {
		if !p.wait(r, q) {
			return
		}
		send(choice(object{"content": word}, nil))
	}
	send(choice(object{}, "length"))
	if q.StreamOptions.IncludeUsage {
		send()
	}
	b.event("", "[DONE]")
}

// completion returns a completion, or a chunk of one.
func completion(q *request, kind string, choices ...any) object {
	if choices == nil {
		choices = []any{}
	}
	return object{"id": "chatcmpl-1", "object": kind, "created": 1767225600, "model": q.Model, "choices": choices}
}

// chatUsage returns what a completion costs. The prompt tokens include the cached ones.
func chatUsage(q *request) object {
	fresh, cached := q.prompt()
	return object{
		"prompt_tokens":             fresh + cached,
		"completion_tokens":         q.MaxTokens,
		"total_tokens":              fresh + cached + q.MaxTokens,
		"prompt_tokens_details":     object{"cached_tokens": cached, "audio_tokens": 0},
		"completion_tokens_details": object{"reasoning_tokens": 0, "audio_tokens": 0},
	}
}
