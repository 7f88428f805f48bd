// SPDX-License-Identifier: MIT

// Llm is a mock provider of language models, to try limits of tokens without a key and without a bill. It
// speaks the formats of OpenAI's chat completions and Anthropic's messages, streamed or not.
//
//	llm -listen 127.0.0.1:9000 -pause 50ms
//
// A token is four bytes of a prompt, or one word of a response. The same request gets the same response,
// byte by byte.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "the address of the provider")
	pause := flag.Duration("pause", 50*time.Millisecond, "the time that a model whose name begins with slow takes for a token")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: newProvider(*pause), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newProvider returns the handler of a provider. Its slow models take a pause for each token.
func newProvider(pause time.Duration) http.Handler {
	p := provider{pause}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.chat)
	mux.HandleFunc("POST /openai/deployments/{model}/chat/completions", p.chat)
	mux.HandleFunc("POST /v1/messages", p.messages)
	return mux
}

type provider struct{ pause time.Duration }

// request has the fields of both APIs that the provider reads.
type request struct {
	Model     string `json:"model"`
	MaxTokens int    `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Messages  []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"` // a string, or a list of parts
	} `json:"messages"`

	// Of OpenAI.
	MaxCompletionTokens int `json:"max_completion_tokens"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	// Of Anthropic.
	System json.RawMessage `json:"system"`
}

// object is a JSON object.
type object = map[string]any

const (
	mostBody   = 4 << 20 // bytes
	mostTokens = 1 << 20 // of a response
)

// readRequest reads a request. If it is not valid, readRequest answers it and returns nil.
func readRequest(w http.ResponseWriter, r *http.Request) *request {
	q := &request{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(q)
	if q.MaxTokens = max(q.MaxTokens, q.MaxCompletionTokens); q.MaxTokens == 0 {
		q.MaxTokens = 16
	}
	if model := r.PathValue("model"); model != "" {
		q.Model = model
	}
	if err != nil || q.Model == "" || len(q.Messages) == 0 || q.MaxTokens < 0 || q.MaxTokens > mostTokens {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"expected a model and messages"}}`)
		return nil
	}
	return q
}

// prompt returns the tokens of a request. The system prompt is cached: the provider has always just read it.
func (q *request) prompt() (fresh, cached int) {
	cached = tokens(q.System)
	for _, m := range q.Messages {
		if m.Role == "system" {
			cached += tokens(m.Content)
		} else {
			fresh += tokens(m.Content)
		}
	}
	return fresh, cached
}

func tokens(text json.RawMessage) int { return (len(text) + 3) / 4 }

// wait takes the time of one token. It reports whether the client is still connected.
func (p provider) wait(r *http.Request, q *request) bool {
	if !strings.HasPrefix(q.Model, "slow") {
		return r.Context().Err() == nil
	}
	select {
	case <-time.After(p.pause):
		return true
	case <-r.Context().Done():
		return false
	}
}

// word is the text of each token.
const word = "token "

// write returns the text of a whole response. It reports whether the client is still connected.
func (p provider) write(r *http.Request, q *request) (text string, ok bool) {
	for range q.MaxTokens {
		if !p.wait(r, q) {
			return "", false
		}
	}
	return strings.Repeat(word, q.MaxTokens), true
}
