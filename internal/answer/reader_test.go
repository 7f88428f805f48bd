// SPDX-License-Identifier: MIT

package answer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sources parses the texts of sources.
func sources(t testing.TB, texts ...string) []Source {
	t.Helper()
	var list []Source
	for _, text := range texts {
		s, err := ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// head returns a header of the lines "Name: value". One that begins with / is a media type.
func head(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

var (
	isJSON   = head("Content-Type: application/json")
	isStream = head("Content-Type: text/event-stream; charset=utf-8")
)

// result writes the usage of each source, as input/output/cached.
func result(r *Reader, n int) string {
	var list []string
	for i := range n {
		text := "none"
		if u, ok := r.Usage(i); ok || u != (Usage{}) {
			text = fmt.Sprintf("%d/%d/%d", min(u.Input+u.CacheWrite+u.CacheWrite1h, MaxCount), u.Output, u.Cached)
			if !ok {
				text += " unreadable"
			}
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// readSplit reads a body in two pieces. It returns the usage, and whether each piece ended the stream.
func readSplit(of []Source, h http.Header, body string, at int) (usage string, first, second bool) {
	r := NewReader(of, h, nil)
	defer r.End(nil)
	_, first = r.Write([]byte(body[:at]))
	_, second = r.Write([]byte(body[at:]))
	return result(r, len(of)), first, second
}

// event returns an event with some data.
func event(data string) string { return "data: " + data + "\n\n" }

// sse returns a stream of events with some data.
func sse(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString(event(d))
	}
	return b.String()
}

const (
	chatChunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"the \"usage\": {"},"finish_reason":null}],"usage":null}`
	chatUsage = `{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":120,"completion_tokens":34,"total_tokens":154,"prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}`

	responseUsage = `"usage":{"input_tokens":200,"input_tokens_details":{"cached_tokens":50},"output_tokens":60,"output_tokens_details":{"reasoning_tokens":10},"total_tokens":260}`

	messageStart = "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":10,"cache_read_input_tokens":300,"output_tokens":1}}}` + "\n\n"
	messageText  = "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"type\":\"message_stop\"}"}}` + "\n\n"
	messagePing  = "event: ping\ndata: " + `{"type": "ping"}` + "\n\n"
	messageDelta = "event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}` + "\n\n"
	messageStop  = "event: message_stop\ndata: " + `{"type":"message_stop"}` + "\n\n"

	geminiFirst = `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":50,"totalTokenCount":50}}`
	geminiText  = `{"candidates":[{"content":{"parts":[{"text":"b"}]}}]}`
	geminiLast  = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":20,"candidatesTokenCount":7,"thoughtsTokenCount":100,"toolUsePromptTokenCount":9,"totalTokenCount":166,"promptTokensDetails":[{"modality":"TEXT","tokenCount":50}]}}`
)

// A client can read lines without waiting for the empty line behind an event. So nothing of the event that
// ends a stream is passed on before the end is known.
func TestBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ source, before, last string }{
		{"openai", sse(chatChunk, chatUsage), event("[DONE]")},
		{"openai", "\ufeff" + sse(chatUsage), event("[DONE]") + "\n\n"},
		{"openai", strings.ReplaceAll(sse(chatUsage), "\n", "\r\n"), "data: [DONE]\r\n\r\n"},
		{"openai", strings.ReplaceAll(sse(chatUsage), "\n", "\r"), "data: [DONE]\r\r"},
		{"openai", sse(chatUsage), "data: [DONE]"},
		{"anthropic", messageStart + messagePing + messageDelta, messageStop},
		{"openai", "", event(`{"type":"response.completed","response":{` + responseUsage + `}}`)},
	} {
		whole := tc.before + tc.last
		for at := range len(whole) {
			r := NewReader(sources(t, tc.source), isStream, nil)
			_, ended := r.Write([]byte(whole[:at]))
			before, ends := r.Write([]byte(whole[at:]))
			r.End(nil)
			if want := max(len(tc.before)-at, 0); !ended && (!ends || before > want || before < want-1) {
				t.Errorf("%q and %q: %d bytes, ends: %v, want %d", whole[:at], whole[at:], before, ends, want)
			}
		}
	}
}

// Each response is read in two pieces, for every split. The stream ends within its text up to end, with
// the last byte of it; no end means that the stream does not say where it ends.
func TestFormats(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, source string
		header       http.Header
		body, want   string
		end          string
	}{
		{"OpenAI, chat", "openai", isJSON, `{"id":"chatcmpl-1","choices":[{"message":{"content":"\"usage\":{}"}}],"usage":{"prompt_tokens":12,"completion_tokens":345,"total_tokens":357}}`, "12/345/0", ""},
		{"OpenAI, total alone", "openai", isJSON, `{"usage":{"total_tokens":150}}`, "150/0/0", ""},
		{"OpenAI, thoughts in the total", "openai", isJSON, `{"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":100}}`, "12/88/0", ""},
		{"OpenAI, total of embeddings", "openai", isJSON, `{"usage":{"prompt_tokens":8,"total_tokens":8}}`, "8/0/0", ""},
		{"OpenAI, total too small", "openai", isJSON, `{"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":1}}`, "8/3/0", ""},
		{"OpenAI, cached", "openai", isJSON, `{"usage":{"prompt_tokens":12,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens":3}}`, "2/3/10", ""},
		{"OpenAI, embeddings", "openai", isJSON, `{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, "8/0/0", ""},
		{"OpenAI, Responses", "openai", isJSON, `{"id":"resp_1","object":"response","output":[],` + responseUsage + `}`, "150/60/50", ""},
		{"OpenAI, both names", "openai", isJSON, `{"usage":{"prompt_tokens":12,"completion_tokens":3,"input_tokens":0,"output_tokens":0}}`, "12/3/0", ""},
		{"OpenAI, more cached than read", "openai", isJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}`, "0/1/5", ""},
		{"OpenAI, error", "openai", isJSON, `{"error":{"message":"no","type":"invalid_request_error"}}`, "none", ""},
		{"OpenAI, no details", "openai", isJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}}`, "5/1/0", ""},
		{"OpenAI, stream", "openai", isStream, sse(chatChunk, chatChunk, chatUsage, "[DONE]"), "20/34/100", "[DONE]"},
		{"OpenAI, null behind the usage", "openai", isStream, sse(chatUsage, chatChunk, "[DONE]"), "20/34/100", "[DONE]"},
		{"OpenAI, usage in each event", "openai", isStream, sse(`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}`, `{"usage":{"prompt_tokens":5,"completion_tokens":2}}`, "[DONE]"), "5/2/0", "[DONE]"},
		{"OpenAI, stream without usage", "openai", isStream, sse(chatChunk, "[DONE]"), "none", "[DONE]"},
		{"OpenAI, stream of Responses", "openai", isStream,
			"event: response.created\ndata: " + `{"type":"response.created","response":{"id":"resp_1","usage":null}}` + "\n\nevent: response.output_text.delta\ndata: " +
				`{"type":"response.output_text.delta","delta":"x"}` + "\n\nevent: response.completed\ndata: " + `{"type":"response.completed","response":{"id":"resp_1",` + responseUsage + "}}\n\n",
			"150/60/50", `"total_tokens":260}}}`},
		{"OpenAI, incomplete", "openai", isStream, sse(`{"response":{` + responseUsage + `},"type":"response.incomplete"}`), "150/60/50", `response.incomplete"}`},
		{"OpenAI, failed", "openai", isStream, sse(`{"type":"response.failed","response":{"usage":null}}`), "none", "null}}"},

		{"Anthropic", "anthropic", isJSON, `{"type":"message","usage":{"input_tokens":25,"cache_creation_input_tokens":10,"cache_read_input_tokens":300,"output_tokens":15,"server_tool_use":{"web_search_requests":1}}}`, "35/15/300", ""},
		{"Anthropic, stream", "anthropic", isStream, messageStart + messagePing + messageText + messageDelta + messageStop, "35/15/300", `data: {"type":"message_stop"}`},
		{"Anthropic, all in message_delta", "anthropic", isStream, messageStart + sse(`{"type":"message_delta","usage":{"input_tokens":30,"cache_read_input_tokens":1,"cache_creation_input_tokens":null,"output_tokens":9}}`), "40/9/1", ""},
		{"Anthropic, error", "anthropic", isStream, messageStart + sse(`{"type":"error","error":{"type":"overloaded_error"}}`), "35/1/300", `overloaded_error"}}`},
		{"Anthropic, truncated", "anthropic", isStream, messageStart + messageText[:20], "35/1/300", ""},

		{"Gemini", "gemini", isJSON, geminiLast, "39/107/20", ""},
		{"Gemini, stream", "gemini", isStream, sse(geminiFirst, geminiText, geminiLast), "39/107/20", ""},
		{"Gemini, carriage returns", "gemini", isStream, strings.ReplaceAll(sse(geminiFirst, geminiLast), "\n", "\r\n"), "39/107/20", ""},
		{"Gemini, array", "gemini", isJSON, "[" + geminiFirst + "\n,\r\n" + geminiText + ",\n" + geminiLast + "\n]\n", "39/107/20", ""},
		{"Gemini, no usage in the last element", "gemini", isJSON, "[" + geminiLast + "," + geminiText + "]", "39/107/20", ""},
		{"Gemini, array truncated", "gemini", isJSON, "[" + geminiFirst + "," + geminiLast[:60], "50/0/0", ""},
		{"Gemini, prompt blocked", "gemini", isJSON, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`, "4/0/0", ""},

		{"pointer", "/usage/total_tokens", isJSON, `{"usage":{"total_tokens":260}}`, "0/260/0", ""},
		{"pointer to a string", "/bytes", isJSON, `{"bytes":"1073741824"}`, "0/1073741824/0", ""},
		{"pointer into an array", "/0/n", isJSON, `[{"n":1},{"n":2}]`, "0/1/0", ""},
		{"pointer, stream", "/usage/total_tokens", isStream, sse(chatChunk, chatUsage, "[DONE]"), "0/154/0", "[DONE]"},
		{"pointer, the type of others", "/n", isStream, sse(`{"type":"error","n":1}`, `{"type":"message_stop","n":2}`), "0/2/0", ""},
		{"pointer, lines of JSON", "/eval_count", head("Content-Type: application/x-ndjson"), "{\"done\":false}\n{\"done\":true,\"eval_count\":290}\n", "0/290/0", ""},
		{"header", "header:x-cost", head("X-Cost: 17", "Content-Type: application/json"), "{}", "0/17/0", ""},
		{"bytes", "bytes", isJSON, "12345", "0/5/0", ""},
		{"duration", "duration", isJSON, "12345", "none", ""},
	} {
		of := sources(t, tc.source)
		end := -1
		if tc.end != "" {
			end = strings.LastIndex(tc.body, tc.end) + len(tc.end)
		}
		for at := range len(tc.body) + 1 {
			usage, first, second := readSplit(of, tc.header, tc.body, at)
			if usage != tc.want {
				t.Errorf("%s, split at %d: %s, want %s", tc.name, at, usage, tc.want)
				break
			}
			if wantFirst := end >= 0 && at >= end; first != wantFirst || second != (end >= 0 && !wantFirst) {
				t.Errorf("%s, split at %d: ends %v and %v, want the end at %d", tc.name, at, first, second, end)
				break
			}
		}
	}
}

// Broken and strange bodies have a clear outcome, wherever they are split.
func TestStrange(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"usage":[`, 100_000)
	for _, tc := range []struct {
		name, source string
		header       http.Header
		body, want   string
	}{
		{"empty", "openai", isJSON, "", "none"},
		{"empty stream", "openai", isStream, "", "none"},
		{"no usage", "openai", isJSON, `{"usage":{}}`, "none"},
		{"usage null", "openai", isJSON, `{"usage":null}`, "none"},
		{"usage a text", "openai", isJSON, `{"usage":"5"}`, "none"},
		{"usage twice", "openai", isJSON, `{"usage":{"prompt_tokens":1,"completion_tokens":2},"usage":{"prompt_tokens":3}}`, "3/0/0"},
		{"count twice", "openai", isJSON, `{"usage":{"prompt_tokens":1,"prompt_tokens":2}}`, "2/0/0"},
		{"exponent", "/n", isJSON, `{"n":1e3}`, "0/1000/0"},
		{"point", "/n", isJSON, `{"n":1.0}`, "0/1/0"},
		{"fraction", "/n", isJSON, `{"n":1.5}`, "0/2/0"},
		{"negative", "/n", isJSON, `{"n":-1}`, "none"},
		{"minus zero", "/n", isJSON, `{"n":-0}`, "0/0/0"},
		{"huge", "/n", isJSON, `{"n":` + "1" + strings.Repeat("0", 30) + `}`, "0/999999999999999/0"},
		{"largest", "/n", isJSON, `{"n":999999999999999}`, "0/999999999999999/0"},
		{"beyond floats", "/n", isJSON, `{"n":1e999}`, "0/999999999999999/0"},
		{"sums of huge ones", "anthropic", isJSON, `{"usage":{"input_tokens":1e30,"cache_creation_input_tokens":1e30,"output_tokens":1e30}}`, "999999999999999/999999999999999/0"},
		{"too long to read", "/n", isJSON, `{"n":1.` + strings.Repeat("0", 300) + `}`, "none"},
		{"a word", "/n", isJSON, `{"n":true}`, "none"},
		{"a text", "/n", isJSON, `{"n":"many"}`, "none"},
		{"infinite", "/n", isJSON, `{"n":"Inf"}`, "none"},
		{"hexadecimal", "/n", isJSON, `{"n":"0x10"}`, "none"},
		{"an object", "/n", isJSON, `{"n":{"n":1}}`, "none"},
		{"a part unreadable", "openai", isJSON, `{"usage":{"prompt_tokens":5,"completion_tokens":-1}}`, "5/0/0 unreadable"},
		{"unreadable at last", "/n", isStream, sse(`{"n":5}`, `{"n":-1}`), "0/5/0 unreadable"},
		{"readable at last", "/n", isStream, sse(`{"n":-1}`, `{"n":5}`), "0/5/0"},
		{"byte order mark", "/n", isJSON, "\ufeff" + `{"n":5}`, "0/5/0"},
		{"half a byte order mark", "/n", isJSON, "\xef\xbb" + `{"n":5}`, "none"},
		{"garbage behind", "/n", isJSON, `{"n":5}]<html>{"n":6}`, "0/5/0"},
		{"truncated", "openai", isJSON, `{"usage":{"prompt_tokens":5,"completion_to`, "5/0/0"},
		{"broken behind the value", "/n", isJSON, `{"n":5,]`, "0/5/0"},
		{"broken before the value", "/n", isJSON, `{"m":],"n":5}`, "none"},
		{"not JSON", "openai", head("Content-Type: text/html"), "<html>", "none"},
		{"JSON for a stream", "/n", isStream, `{"n":5}`, "none"},
		{"a stream for JSON", "/n", isJSON, event(`{"n":5}`), "none"},
		{"not UTF-8", "/n", isJSON, "{\"\xff\":\"\xfe\",\"n\":5}", "0/5/0"},
		{"deep", "/n", isJSON, `{"x":` + deep + strings.Repeat("]}", 100_000) + `,"n":5}`, "0/5/0"},
		{"deep and open", "openai", isJSON, deep, "none"},
		{"broken event", "/n", isStream, sse(`{"n":4}`, `{"n":`, `{"n":5} x`, "x"), "0/5/0"},
		{"other lists", "openai", isJSON, `[{"usage":{"prompt_tokens":5}}]`, "none"},
		{"type twice", "anthropic", isStream, sse(`{"type":"message_stop","type":"ping","usage":{"output_tokens":1}}`), "0/1/0"},
		{"headers disagree", "header:X", head("X: 5", "X: 7"), "", "0/7/0"},
		{"a header is no number", "header:X", head("X: 5", "X: -"), "", "0/5/0 unreadable"},
		{"an empty header", "header:X", head("X: "), "", "none"},
		{"a missing header", "header:X", isJSON, "", "none"},
	} {
		of := sources(t, tc.source)
		step := 1
		if len(tc.body) > 1000 {
			step = len(tc.body) / 10
		}
		for at := 0; at <= len(tc.body); at += step {
			if usage, first, second := readSplit(of, tc.header, tc.body, at); usage != tc.want || first || second {
				t.Errorf("%s, split at %d: %s, ends %v and %v; want %s", tc.name, at, usage, first, second, tc.want)
				break
			}
		}
	}
}

// One pass reads all sources, also those of different formats.
func TestSeveralSources(t *testing.T) {
	t.Parallel()
	texts := []string{"openai", "gemini", "bytes", "/usage/total_tokens", "anthropic", "header:X-Other", "trailer:X-Cost", "/0/usageMetadata/totalTokenCount", "duration", "openai"}
	for _, tc := range []struct {
		header     http.Header
		body, want string
	}{
		{isStream, sse(chatUsage, "[DONE]"), "20/34/100 none BYTES 0/154/0 none none 0/5/0 none none 20/34/100"},
		{isJSON, "[" + geminiFirst + "," + geminiLast + "]", "none 39/107/20 BYTES none none none 0/5/0 0/50/0 none none"},
		{isStream, messageStart + messageStop, "none none BYTES none 35/1/300 none 0/5/0 none none none"},
	} {
		of := sources(t, texts...)
		r := NewReader(of, tc.header, nil)
		for _, b := range []byte(tc.body) {
			r.Write([]byte{b})
		}
		r.End(head("X-Cost: 5"))
		want := strings.Replace(tc.want, "BYTES", fmt.Sprintf("0/%d/0", len(tc.body)), 1)
		if got := result(r, len(of)); got != want {
			t.Errorf("%.40s: %s, want %s", tc.body, got, want)
		}
		r.End(head("X-Cost: 6"))
		r.Write([]byte(tc.body))
		if got := result(r, len(of)); got != want {
			t.Errorf("%.40s: %s after calls behind End, want %s", tc.body, got, want)
		}
	}
}

// A program can ask at any time for the usage that has arrived.
func TestUsageBeforeTheEnd(t *testing.T) {
	t.Parallel()
	of := sources(t, "anthropic")
	r := NewReader(of, isStream, nil)
	defer r.End(nil)
	for _, step := range []struct{ bytes, want string }{
		{messageStart[:len(messageStart)-22], "35/0/300"},
		{messageStart[len(messageStart)-22:], "35/1/300"},
		{messageText, "35/1/300"},
		{messageDelta[:len(messageDelta)-3], "35/15/300"},
	} {
		if r.Write([]byte(step.bytes)); result(r, 1) != step.want {
			t.Errorf("after %q: %s, want %s", step.bytes, result(r, 1), step.want)
		}
	}
}
