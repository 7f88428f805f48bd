// SPDX-License-Identifier: MIT

// Package billtest has a model of a provider of language models, which bills as much as a request permits. It also has
// clients that choose every field against a budget. Only tests and measurements use it.
package billtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Most is the most tokens of output of the model, and what it bills for each thing that is not in the text of a request.
const Most = 10_000

// Weights are the prices of the provider, as a rule has them.
const Weights = "{input: 1, output: 3, cached: 0.5, cache_write: 2}"

// Provider bills requests. It reads them by encoding/json, which knows nothing of what Diana reads. It is safe for
// concurrent use.
type Provider struct {
	Format string // openai, anthropic or gemini

	// Billed is called with the body and the cost of each request, before it is answered. A stream has its first word by
	// then. It may block.
	Billed func(r *http.Request, body []byte, cost int64)
}

// tokens returns the tokens of a request: one for each byte of a text, a template for each message, and the most of the
// output. It also returns whether the answer is a stream, and whether the stream has the usage.
func (p *Provider) tokens(body []byte) (input, output int64, stream, usage bool) {
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return 0, 0, false, false
	}
	number := func(v any, otherwise int64) int64 {
		if n, ok := v.(float64); ok {
			return int64(min(n, Most))
		}
		return otherwise
	}
	one := func(in map[string]any, key string) int64 { return max(number(in[key], 1), 1) }
	switch p.Format {
	case "gemini":
		of, _ := all["generationConfig"].(map[string]any)
		output = number(of["maxOutputTokens"], Most) * one(of, "candidateCount")
	case "anthropic":
		output = number(all["max_tokens"], Most)
	default:
		output = number(all["max_tokens"], 0)
		if _, ok := all["input"]; ok {
			output = number(all["max_output_tokens"], Most)
		} else {
			output = max(output, number(all["max_completion_tokens"], 0))
			if output == 0 {
				output = Most
			}
			prompts, _ := all["prompt"].([]any)
			if len(prompts) > 0 {
				if _, tokens := prompts[0].(float64); tokens {
					prompts = nil
				}
			}
			output *= max(one(all, "n"), one(all, "best_of")) * max(int64(len(prompts)), 1)
		}
	}
	var walk func(v any) int64
	walk = func(v any) (n int64) {
		switch v := v.(type) {
		case string:
			if v == "image_url" || v == "web_search" || v == "image" || v == "priority" {
				n += Most
			}
			return n + int64(len(v))
		case []any:
			for _, item := range v {
				n += 4 + walk(item)
			}
		case map[string]any:
			for key, item := range v {
				switch key {
				case "previous_response_id", "cachedContent", "container", "chat_template", "fileData", "prediction":
					if item != nil {
						n += Most
					}
				}
				n += walk(item)
			}
		}
		return n
	}
	stream, _ = all["stream"].(bool)
	options, _ := all["stream_options"].(map[string]any)
	usage, _ = options["include_usage"].(bool)
	return walk(all) + 50, output, stream, usage
}

// ServeHTTP bills a request and answers it with its usage. Half of the input is cached; with Anthropic all of it is
// written to the cache. A client that disconnects from a stream is billed the same.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	in, out, stream, asked := p.tokens(body)
	cached := in / 4 * 2
	cost := in - cached/2 + 3*out
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, in, out, cached)
	word := `{"choices":[{"delta":{"content":"word"}}]}`
	switch p.Format {
	case "gemini":
		usage, word, asked = fmt.Sprintf(`"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"cachedContentTokenCount":%d}`, in, out, cached), `{}`, true
	case "anthropic":
		cost = 2*in + 3*out
		usage = fmt.Sprintf(`"usage":{"input_tokens":0,"cache_creation_input_tokens":%d,"output_tokens":%d}`, in, out)
		word, asked = `{"type":"content_block_delta","delta":{"type":"text_delta","text":"word"}}`, true
	}
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", word)
		_ = http.NewResponseController(w).Flush() // a client that is gone is billed too
	}
	p.Billed(r, body, cost)
	switch {
	case !stream:
		_, _ = fmt.Fprintf(w, "{%s}", usage)
	case r.Context().Err() != nil:
	case !asked:
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	case p.Format == "anthropic":
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"message_delta\",%s}\n\ndata: {\"type\":\"message_stop\"}\n\n", usage)
	default:
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
	}
}

// Adversary writes a request with every field chosen against the budget.
func Adversary(r *rand.Rand, format string) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	size := func() string {
		return pick("1", "7", "40", "100", "1e2", "101", "1e9", `"9"`, "null", "0", "-1", "2.5", "[]")
	}
	content := func() string {
		return pick(`"hi"`, `"`+strings.Repeat("é", r.IntN(30))+`"`, `"\ud800"`, `null`, `[{"type":"text","text":"a"}]`, `[{"text":"a","type":"text"}]`,
			`[{"type":"image_url","image_url":{"url":"x"}}]`, `[{"type":"text","type":"image_url"}]`, `[{"type":"image"}]`, `{}`, "\"\xff\"")
	}
	members := []string{}
	add := func(odds int, text string) {
		if r.IntN(odds) == 0 {
			members = append(members, text)
		}
	}
	switch kind := r.IntN(3); {
	case format == "gemini":
		add(1, `"contents":[{"role":"user","parts":[`+pick(`{"text":"hi"}`, `{"text":"hi"},{"text":"x"}`, `{"fileData":{"fileUri":"x"}}`)+`]}]`)
		add(2, pick(`"generationConfig"`, `"generation_config"`, `"GenerationConfig"`)+`:{`+pick(`"maxOutputTokens":`+size(), `"maxoutputtokens":`+size(), `"temperature":1`)+pick("", `,"candidateCount":`+size())+`}`)
		add(6, `"cachedContent":`+pick(`null`, `"c"`))
	case kind == 0 && format == "openai":
		add(1, `"input":`+pick(`"hi"`, `[{"role":"user","content":`+content()+`}]`))
	case kind == 1 && format == "openai":
		add(1, `"prompt":`+pick(`"hi"`, `["a","b","c"]`, `[1,2]`, `[[1],[2]]`, `{"id":"x"}`))
	default:
		add(1, `"messages":[{"role":"user","content":`+content()+`}]`)
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "Max_Tokens", "MAX_TOKENS", `max_toke\u006es`} {
		add(4, `"`+name+`":`+size())
	}
	add(3, pick(`"n"`, `"N"`)+`:`+pick("1", "2", "3", "1e0", `"3"`, "0", "-1", "null"))
	add(6, `"best_of":`+pick("2", "5", `"9"`))
	add(8, `"previous_response_id":`+pick(`"r"`, "null"))
	add(8, `"service_tier":`+pick(`"priority"`, `"auto"`))
	add(8, `"tools":[{"type":"web_search"}]`)
	add(8, `"stream":`+pick("false", "null"))
	add(12, `"chat_template":"x"`)
	add(12, `"prediction":{"content":"x"}`)
	add(12, `"container":"x"`)
	r.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	return pick("{", "{", "{ ") + strings.Join(members, ",") + pick("}", "}", "}", "} ", "}x")
}
