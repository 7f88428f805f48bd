// SPDX-License-Identifier: MIT

package answer

import (
	"bytes"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"
)

// A Reader reads a stream of 1 GB, and a compressed body that is as large, in bounded memory. The other
// bodies have 32 MB.
func TestMemory(t *testing.T) {
	size := 1 << 30
	if race.Enabled || testing.Short() {
		size = 16 << 20
	}
	text := strings.Repeat("a \\u00e9 long text. ", 50)
	for _, tc := range []struct {
		name               string
		header             http.Header
		begin, middle, end string
	}{
		{"stream", isStream, "", event(strings.Replace(chatChunk, "the ", text, 1)), event(chatUsage) + event("[DONE]")},
		{"one event", isStream, `data: {"x":"`, text, `"}` + "\n\n" + event(chatUsage) + event("[DONE]")},
		{"one line", isStream, ":", text, "\n" + event(chatUsage) + event("[DONE]")},
		{"JSON", isJSON, `{"choices":[""`, `,"` + text + `"`, `],` + chatUsage[1:]},
		{"one string", isJSON, `{"x":"`, text, `",` + chatUsage[1:]},
	} {
		chunk := strings.Repeat(tc.middle, 1+(32<<10)/len(tc.middle))
		write := func(header http.Header, begin, repeat, end []byte, times int) *Reader {
			r := NewReader(sources(t, "openai"), header, nil)
			r.Write(begin)
			for range times {
				r.Write(repeat)
			}
			r.Write(end)
			return r
		}
		for _, coding := range []string{"identity", "gzip"} {
			begin, repeat, end := []byte(tc.begin), []byte(chunk), []byte(tc.end)
			size := size / 32
			if coding == "identity" && tc.name == "stream" || coding == "gzip" && tc.name == "one string" {
				size *= 32
			}
			times := size / len(chunk)
			if coding == "gzip" { // there are 32 members
				begin, repeat, end = zip(t, tc.begin), zip(t, strings.Repeat(chunk, 1+times/32)), zip(t, tc.end)
				times = 32
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := write(withCoding(tc.header, coding), begin, repeat, end, times)
			runtime.ReadMemStats(&after)
			if total := after.TotalAlloc - before.TotalAlloc; total > 256<<10 {
				t.Errorf("%s, %s: %d bytes allocated for %d times %d bytes", tc.name, coding, total, times, len(repeat))
			}
			if got := result(r, 1); got != "20/34/100" {
				t.Errorf("%s, %s: %s", tc.name, coding, got)
			}
			r.End(nil)
		}
	}
}

// A chunk of a stream allocates nothing, with or without a usage.
func TestWriteAllocatesNothing(t *testing.T) {
	for name, chunk := range map[string]string{
		"OpenAI": event(chatChunk), "OpenAI, usage": event(chatUsage), "Anthropic": messageText, "Anthropic, usage": messageStart + messageStop, "Gemini": event(geminiLast),
	} {
		r := NewReader(sources(t, "openai", "anthropic", "gemini", "/usage/total_tokens", "bytes"), isStream, nil)
		p := []byte(chunk)
		r.Write(p)
		if n := testing.AllocsPerRun(100, func() { r.Write(p) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		r.End(nil)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, bm := range []struct {
		name    string
		sources []string
		chunk   string
	}{
		{"bytes", []string{"bytes"}, event(chatChunk)},
		{"openai", []string{"openai"}, event(chatChunk)},
		{"anthropic", []string{"anthropic"}, messageText},
		{"gemini", []string{"gemini"}, event(geminiLast)},
		{"all", []string{"openai", "anthropic", "gemini", "/usage/total_tokens"}, event(chatChunk)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			r := NewReader(sources(b, bm.sources...), isStream, nil)
			defer r.End(nil)
			p := []byte(bm.chunk)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				r.Write(p)
			}
		})
	}
}

// One response from its header to its end.
func BenchmarkReader(b *testing.B) {
	of := sources(b, "openai")
	for name, bm := range map[string]struct {
		header http.Header
		body   []byte
	}{
		"json":   {isJSON, []byte(chatUsage)},
		"stream": {isStream, []byte(sse(chatChunk, chatUsage, "[DONE]"))},
		"gzip":   {withCoding(isJSON, "gzip"), bytes.Clone(zip(b, chatUsage))},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := NewReader(of, bm.header, nil)
				r.Write(bm.body)
				if _, ok := r.Usage(0); !ok {
					b.Fatal("no usage")
				}
				r.End(nil)
			}
		})
	}
}
