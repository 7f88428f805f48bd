// SPDX-License-Identifier: MIT

package answer

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// TestContent counts the texts that a model writes.
func TestContent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`{"choices":[{"delta":{"content":"Hello"}}]}`:              5,
		`{"id":"not counted","content":"a\"b\\"}`:                  6,
		`{"content" : [ {"type":"text", "text" : "xyz"} ]}`:        3,
		`{"type":"content","content":null,"model":"content"}`:      0,
		"data: {\"delta\":\"ab\"}\n\ndata: {\"text\":\"c\"}\n\n":   3,
		`{"content":"breaks of`:                                    9,
		"{\"content\":\"a line that breaks\n{\"text\":\"xy\"}":     2,
		`{"arguments":"{\"a\":1}","obfuscation":"xxxxxxxxxxxxxx"}`: 9,
		`{"content_is_a_long_key":"xx","content":""}`:              0,
		`{"content":"x","usage":{"a":1},"thinking":"yy"}`:          3,
	} {
		for cut := range len(text) {
			var c content
			c.read([]byte(text[:cut]))
			c.read([]byte(text[cut:]))
			if got := c.total(); got != want {
				t.Errorf("%s, cut at %d: %d, want %d", text, cut, got, want)
			}
		}
	}
}

// FuzzContent compares documents with what encoding/json reads: no text is counted with less than its bytes.
func FuzzContent(f *testing.F) {
	f.Add([]byte(`{"content":"\u00e9\ud83d\ude00"}`), uint64(1))
	f.Add([]byte(`{"a":"content","text":"\\\""}`), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		var whole, pieces content
		whole.read(text)
		r := rand.New(rand.NewPCG(seed, 0))
		for rest := text; len(rest) > 0; {
			n := min(1+r.IntN(9), len(rest))
			pieces.read(rest[:n])
			rest = rest[n:]
		}
		if whole.total() != pieces.total() {
			t.Fatalf("%q: %d, in pieces %d", text, whole.total(), pieces.total())
		}
		var of map[string]string
		if bytes.Contains(text, []byte(`\u`)) || json.Unmarshal(text, &of) != nil { // keys are known as they are usually written
			return
		}
		least := int64(0)
		for _, key := range contentKeys {
			least += int64(len([]rune(of[string(key)]))) // a byte that is not UTF-8 becomes three
		}
		if whole.total() < least {
			t.Fatalf("%q: %d, want at least %d", text, whole.total(), least)
		}
	})
}
