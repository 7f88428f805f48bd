// SPDX-License-Identifier: MIT

package diana_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana"
)

// provider is a model of a language model that bills as providers do: as much as the request permits. It reads
// requests by encoding/json, which knows nothing of what Diana reads.
type provider struct {
	format string
	billed atomic.Int64
	served atomic.Int64

	reserved sync.Map // by X-Request: what Diana has reserved
	t        *testing.T
}

// dear is what a request costs that has something that is not in its text.
const dear = 1_000_000

// bill returns the tokens of a request: one for each byte of a text, a template for each message, and the most of the
// output.
func (p *provider) bill(body []byte) (input, output int64) {
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return 0, 0
	}
	number := func(v any, otherwise int64) int64 {
		if n, ok := v.(float64); ok {
			return int64(n)
		}
		return otherwise
	}
	one := func(in map[string]any, key string) int64 { return max(number(in[key], 1), 1) }
	switch p.format {
	case "gemini":
		of, _ := all["generationConfig"].(map[string]any)
		output = number(of["maxOutputTokens"], dear) * one(of, "candidateCount")
	case "anthropic":
		output = number(all["max_tokens"], dear)
	default:
		output = number(all["max_tokens"], 0)
		if _, ok := all["input"]; ok {
			output = number(all["max_output_tokens"], dear)
		} else {
			output = max(output, number(all["max_completion_tokens"], 0))
			if output == 0 {
				output = dear
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
				n += dear
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
						n += dear
					}
				}
				n += walk(item)
			}
		}
		return n
	}
	return walk(all) + 50, output
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	p.served.Add(1)
	in, out := p.bill(body)
	cost := in + 3*out
	if p.format == "anthropic" { // all of the input is written to a cache
		cost += in
	}
	p.billed.Add(cost)
	if n, _ := p.reserved.Load(r.Header.Get("X-Request")); n.(int64) < cost {
		p.t.Errorf("%s: %s costs %d, and %d is reserved", p.format, body, cost, n)
	}
	switch p.format {
	case "gemini":
		_, _ = fmt.Fprintf(w, `{"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d}}`, in, out)
	case "anthropic":
		_, _ = fmt.Fprintf(w, `{"usage":{"input_tokens":0,"cache_creation_input_tokens":%d,"output_tokens":%d}}`, in, out)
	default:
		_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, in, out)
	}
}

// adversary writes a request with every field chosen against the budget.
func adversary(r *rand.Rand, format string) string {
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

// TestStrictRuleIsNeverOverrun has clients that choose every field against a budget. No request that a strict rule allows
// costs more than its reservation, and all together cost no more than the limit.
func TestStrictRuleIsNeverOverrun(t *testing.T) {
	t.Parallel()
	for format, limit := range map[string]int64{"openai": 35_000, "anthropic": 25_000, "gemini": 10_000} {
		p := &provider{format: format, t: t}
		l, err := diana.Options{OnDecision: func(d *diana.Decision) {
			p.reserved.Store(d.Request().HTTP.Header.Get("X-Request"), d.Request().Costs["reserve:tokens"])
		}}.New(parsed(t, fmt.Sprintf(`{url: /, rules: [{name: tokens, unit: total, algo: W, rpu: %d, charge: all, cost: {answer: %s,
			reserve: {output: auto, or: 50, most: 100, input: bytes, add: 100, set: true, bound: strict}, weights: {input: 1, output: 3, cached: 0.5, cache_write: 2}}}]}`, limit, format)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		h := l.Handler(p)
		var clients sync.WaitGroup
		var refused, busy atomic.Int64
		for c := range 8 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 5))
				for i := range 400 {
					w := httptest.NewRecorder()
					q := httptest.NewRequest("POST", "/v1/x", strings.NewReader(adversary(r, format)))
					q.Header.Set("X-Request", fmt.Sprint(c, " ", i))
					h.ServeHTTP(w, q)
					switch w.Code {
					case 400:
						refused.Add(1)
					case 503:
						busy.Add(1)
					}
				}
			})
		}
		clients.Wait()
		billed, served := p.billed.Load(), p.served.Load()
		if billed > limit || billed < limit*8/10 || served < 20 || refused.Load() < 100 {
			t.Errorf("%s: %d of %d billed for %d requests; %d were open and %d over the limit", format, billed, limit, served, refused.Load(), busy.Load())
		}
	}
}
