// SPDX-License-Identifier: MIT

package requestbody

import (
	"encoding/json"
	"strings"
	"testing"
)

// strict is a demand of a strict rule.
func strict(format string) (*Query, *Demand) {
	names, times := Names(format)
	q := &Query{Pointers: append(append([]string{}, names...), times...), Demands: []Demand{
		{Format: format, Names: names, Auto: true, Or: 100, Most: 1000, Set: true, Strict: true},
	}}
	return q, &q.Demands[0]
}

// TestClosed accepts the requests of clients, with the body that the upstream gets, and names what a strict rule
// refuses.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ format, body, want string }{
		{"openai", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"max_tokens":100,"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"openai", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":7,"n":2,"stream":true}`, ""},
		{"openai", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"max_tokens":1,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","image_url":{}}}}]}`, ""},
		{"openai", `{"prompt":["a","b"],"best_of":2}`, `{"max_tokens":100,"prompt":["a","b"],"best_of":2}`},
		{"openai", `{"prompt":[[1,2],[3]],"max_tokens":5}`, ""},
		{"openai", `{"input":"hi","stream":true}`, `{"max_output_tokens":100,"input":"hi","stream":true}`},
		{"openai", `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call_output","call_id":"1","output":"x"}],"max_output_tokens":5,"tools":[{"type":"function","name":"f","parameters":{}}]}`, ""},
		{"openai", `{"messages":[],"max_tokens":1,"image_url":null}`, ""},
		{"anthropic", `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"text":"a","type":"text"},{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}]}]}],"tools":[{"name":"f","input_schema":{}}],"thinking":{"type":"enabled","budget_tokens":5}}`, ""},
		{"gemini", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"temperature":1}}`, `{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":100,"temperature":1}}`},
		{"gemini", `{"contents":[{"parts":[{"text":"hi"}]}]}`, `{"generationConfig":{"maxOutputTokens":100},"contents":[{"parts":[{"text":"hi"}]}]}`},
		{"/usage/cost", `{"messages":[]}`, `{"max_tokens":100,"messages":[]}`},

		{"openai", ``, "is of no kind"},
		{"openai", `[]`, "is no JSON object"},
		{"openai", `{"model":"m"}`, "is of no kind"},
		{"openai", "{\"messages\":[{\"content\":\"\xff\"}]}", "is not UTF-8"},
		{"openai", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, `/messages/0/content/0 of the type "image_url"`},
		{"openai", `{"messages":[{"role":"user","content":[{"type":"text","text":"x","type":"image_url"}]}]}`, `of the type "image_url"`},
		{"openai", `{"messages":[{"role":"user","content":[{"type":"image_url","type":"text","text":"x"}]}]}`, `/messages/0/content/0/type twice`},
		{"openai", `{"messages":[{"role":"user","content":[{"type":"text","text":"x","image_url":"y"}]}]}`, `/messages/0/content/0/image_url`},
		{"openai", `{"messages":[{"role":"user","content":{"type":"text"}}]}`, `/messages/0/content`},
		{"openai", `{"messages":[],"messages":[]}`, `/messages twice`},
		{"openai", `{"messages":[],"Max_Tokens":5}`, `/max_tokens in other letters`},
		{"openai", `{"messages":[],"max_output_tokens":5}`, `/max_output_tokens`},
		{"openai", `{"messages":[],"max_tokens":1001}`, `1 to 1000 at /max_tokens`},
		{"openai", `{"messages":[],"max_tokens":"5"}`, `1 to 1000 at /max_tokens`},
		{"openai", `{"messages":[],"max_tokens":null}`, `1 to 1000 at /max_tokens`},
		{"openai", `{"messages":[],"max_tokens":0}`, `1 to 1000 at /max_tokens`},
		{"openai", `{"messages":[],"max_tokens":5.5}`, `1 to 1000 at /max_tokens`},
		{"openai", `{"messages":[],"n":"3"}`, `/n`}, {"openai", `{"messages":[],"n":0}`, `/n`}, {"openai", `{"messages":[],"N":3}`, `/N`},
		{"openai", `{"messages":[],"chat_template":"x"}`, `/chat_template`},
		{"openai", `{"messages":[],"prediction":{}}`, `/prediction`}, {"openai", `{"messages":[],"service_tier":"priority"}`, `/service_tier`},
		{"openai", `{"messages":[],"web_search_options":{}}`, `/web_search_options`}, {"openai", `{"messages":[],"a/b~":1}`, `/a~1b~0`},
		{"openai", `{"messages":[],"tools":[{"type":"web_search"}]}`, `/tools/0 of the type "web_search"`},
		{"openai", `{"messages":[],"modalities":["text","audio"]}`, `/modalities/1`}, {"openai", `{"messages":[],"input":"x"}`, `/input`},
		{"openai", `{"input":"x","previous_response_id":"r"}`, `/previous_response_id`}, {"openai", `{"input":"x","background":true}`, `/background`},
		{"openai", `{"input":"x","conversation":"c"}`, `/conversation`}, {"openai", `{"prompt":{"id":"p"}}`, `/prompt`},
		{"openai", `{"input":[{"type":"item_reference","id":"x"}]}`, `/input/0/type`},
		{"openai", `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"x"}]}]}`, `of the type "input_file"`},
		{"anthropic", `{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, `of the type "image"`},
		{"anthropic", `{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, `/tools/0/type`},
		{"anthropic", `{"messages":[],"mcp_servers":[]}`, `/mcp_servers`}, {"anthropic", `{"messages":[],"container":"c"}`, `/container`},
		{"anthropic", `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"document"}]}]}]}`, `of the type "document"`},
		{"gemini", `{"contents":[{"parts":[{"fileData":{"fileUri":"x"}}]}]}`, `/contents/0/parts/0/fileData`},
		{"gemini", `{"contents":[],"cachedContent":"c"}`, `/cachedContent`}, {"gemini", `{"contents":[],"tools":[{"googleSearch":{}}]}`, `/tools/0/googleSearch`},
		{"gemini", `{"contents":[],"GenerationConfig":{}}`, `/generationConfig/maxOutputTokens in other letters`},
		{"gemini", `{"contents":[],"generationConfig":{"MaxOutputTokens":1}}`, `/generationConfig/maxOutputTokens in other letters`},
		{"gemini", `{"contents":[],"generationConfig":{"max_output_tokens":1}}`, `/generationConfig/maxOutputTokens in other letters`},
		{"gemini", `{"contents":[],"generationConfig":{"maxOutputTokens":1,"candidate_count":8}}`, `/generationConfig/candidateCount in other letters`},
		{"gemini", `{"contents":[],"generation_config":{"max_output_tokens":9}}`, `/generationConfig/maxOutputTokens in other letters`},
		{"gemini", `{"contents":[],"generationConfig":{"responseModalities":["IMAGE"]}}`, `/generationConfig/responseModalities/0`},
	} {
		q, d := strict(tc.format)
		if tc.format == "/usage/cost" {
			d.Format = tc.format
		}
		_, err := Read([]byte(tc.body), q)
		if accepted := tc.want == "" || tc.want[0] == '{'; !accepted {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %s: %v, want one with %q", tc.format, tc.body, err, tc.want)
			}
			continue
		}
		if tc.want == "" {
			tc.want = tc.body
		}
		if got := string(SetMost([]byte(tc.body), d)); err != nil || got != tc.want {
			t.Errorf("%s: %s\n%v, %s\nwant %s", tc.format, tc.body, err, got, tc.want)
		}
	}
}

// TestPrompts counts the texts of a completion.
func TestPrompts(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int64{
		`{}`: 1, `{"prompt":"a"}`: 1, `{"prompt":[]}`: 1, `{"prompt":["a"]}`: 1, `{"prompt":["a","b","c"]}`: 3, `{"prompt":[1,2,3]}`: 1, `{"prompt":[[1,2],[3]]}`: 2, `{"prompt":[1,"a"]}`: 2,
		`{"prompt":{"id":"x"}}`: 1, `[]`: 1, `"x"`: 1, `{"prompt":null}`: 1,
	} {
		q, _ := strict("openai")
		q.Demands = nil
		if read, err := Read([]byte(body), q); err != nil || read.Prompts != want || read.Size != len(body) {
			t.Errorf("%s: %+v, %v, want %d", body, read, err, want)
		}
	}
}

// FuzzDemand reads and changes bodies. A body that a strict rule accepts has the most tokens of output
// afterwards, and is accepted again.
func FuzzDemand(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}],"n":1e0}`, `{"generationConfig":[],"contents":[]}`,
		`{"contents":[],"generationConfig":{}}`, `{"prompt":[["a"]],"max_tokens":1e2}`, `{"input":[{"content":"x"}]}`, `{"messages":[],"stream":true,"stream_options":{}}`,
		`{"":[],"generAtionConfig":{}}`,
	} {
		for i := range 3 {
			f.Add(body, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, text string, of uint8) {
		format := []string{"openai", "anthropic", "gemini"}[of%3]
		q, d := strict(format)
		q.Demands[0].Strict = of < 128
		body := []byte(text)
		if _, err := Read(body, q); err != nil || len(body) == 0 {
			return
		}
		changed := SetMost(body, d)
		if string(body) != text {
			t.Fatalf("%q: the text itself has changed", text)
		}
		read, err := Read(changed, q)
		if err != nil || !json.Valid(changed) {
			t.Fatalf("%q became %q: %v", text, changed, err)
		}
		most := int64(0)
		for i := range d.Names {
			most = max(most, read.Values[i].Count)
		}
		if most < 1 || most > d.Most {
			t.Fatalf("%q became %q: at most %d tokens", text, changed, most)
		}
		if again := SetMost(changed, d); string(again) != string(changed) {
			t.Fatalf("%q became %q, and then %q", text, changed, again)
		}
	})
}
