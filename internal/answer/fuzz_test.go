// SPDX-License-Identifier: MIT

package answer

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// everything has sources of all kinds that are in a body.
var everything = []string{"openai", "anthropic", "gemini", "/usage/total_tokens", "/0/n", "/type"}

// checkReader reads a body whole, in pieces, and compressed, and compares the results. cut gives the
// lengths of the pieces.
func checkReader(t *testing.T, h http.Header, body string, cut func() int) {
	t.Helper()
	of := sources(t, everything...)
	whole := NewReader(of, h, nil)
	defer whole.End(nil)
	_, ends := whole.Write([]byte(body))
	want := result(whole, len(of))
	for i := range of {
		if u, _ := whole.Usage(i); min(u.Input, u.Output, u.Cached, u.CacheWrite, u.CacheWrite1h) < 0 || max(u.Input, u.Output, u.Cached, u.CacheWrite, u.CacheWrite1h) > MaxCount {
			t.Fatalf("%q: source %d has %+v", body, i, u)
		}
	}
	check := func(name string, h http.Header, bytes []byte) {
		r := NewReader(of, h, nil)
		defer r.End(nil)
		ended := false
		for rest := bytes; len(rest) > 0; {
			n := min(max(cut(), 1), len(rest))
			before, ends := r.Write(rest[:n])
			if before < 0 || before > n || !ends && before != n {
				t.Fatalf("%q %s: %d of %d bytes before the end, ends: %v", body, name, before, n, ends)
			}
			ended = ends || ended
			rest = rest[n:]
		}
		if got := result(r, len(of)); got != want || ended != ends {
			t.Fatalf("%q %s: %s, ends: %v; want %s, %v", body, name, got, ended, want, ends)
		}
	}
	check("in pieces", h, []byte(body))
	check("compressed", withCoding(h, "gzip"), zip(t, body[:len(body)/2], body[len(body)/2:]))
}

func FuzzReader(f *testing.F) {
	for i, body := range []string{
		chatUsage, geminiLast, "[" + geminiFirst + "," + geminiLast + "]", `{"type":5}`, "\ufeff" + `[{"n":1e3}]`,
		sse(chatChunk, chatUsage, "[DONE]"), messageStart + messageText + messageDelta + messageStop, sse(geminiFirst, geminiLast),
		"data: {\r\ndata: \"type\":\"error\"}\r\rdata:[DONE]\n", sse(`{"type":"response.completed","response":{` + responseUsage + `}}`),
	} {
		f.Add(body, i >= 5, uint64(i))
	}
	f.Fuzz(func(t *testing.T, body string, stream bool, seed uint64) {
		h := isJSON
		if stream {
			h = isStream
		}
		r := rand.New(rand.NewPCG(seed, 0))
		checkReader(t, h, body, func() int { return r.IntN(20) })
	})
}

// randomUsage returns a document of OpenAI, and its usage by encoding/json. Some of its counts are
// missing or not counts.
func randomUsage(r *rand.Rand) (document string, want Usage, ok bool) {
	number := func() any {
		return []any{0, 1, 20, 3e5, "4", nil, -1, 1.5, true, map[string]any{}, []any{1}}[r.IntN(11)]
	}
	usage := map[string]any{}
	for name, keep := range map[string]int{"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 9, "input_tokens": 2, "x": 5} {
		if r.IntN(10) < keep {
			usage[name] = number()
		}
	}
	if r.IntN(2) == 0 {
		usage["prompt_tokens_details"] = map[string]any{"cached_tokens": number(), "audio_tokens": number()}
	}
	text, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"usage": usage}, "usage"}, "usage": usage, "x": map[string]any{"usage": usage}})
	if err != nil {
		panic(err)
	}
	known, wrong := false, false
	read := func(v any) int64 {
		switch v := v.(type) {
		case nil:
			return 0
		case int:
			if v >= 0 {
				known = true
				return int64(v)
			}
		case float64:
			known = true
			return int64(math.Ceil(v))
		case string:
			known = true
			return 4
		}
		wrong = true
		return 0
	}
	want.Input = max(read(usage["prompt_tokens"]), read(usage["input_tokens"]))
	want.Output = read(usage["completion_tokens"])
	if details, has := usage["prompt_tokens_details"].(map[string]any); has {
		want.Cached = min(read(details["cached_tokens"]), want.Input)
		want.Input -= want.Cached
	}
	parts, unreadable := want.Input+want.Cached, wrong
	rest := max(read(usage["total_tokens"])-parts-want.Output, 0)
	if parts > 0 {
		want.Output += rest
	} else {
		want.Input = rest
	}
	return string(text), want, known && !unreadable // a total that is no count is ignored
}

func TestRandomUsage(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	of := sources(t, "openai")
	for range 500 {
		document, want, ok := randomUsage(r)
		h, body := isJSON, document
		if r.IntN(2) == 0 {
			h, body = isStream, sse(strings.Repeat(" ", r.IntN(3))+document, `{"usage":null}`)
		}
		reader := NewReader(of, h, nil)
		reader.Write([]byte(body))
		if u, known := reader.Usage(0); u != want || known != ok {
			t.Fatalf("%s: %+v, %v; want %+v, %v", document, u, known, want, ok)
		}
		checkReader(t, h, body, func() int { return r.IntN(50) })
		reader.End(nil)
	}
}
