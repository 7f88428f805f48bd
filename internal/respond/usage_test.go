// SPDX-License-Identifier: MIT

package respond

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// FuzzUsageFilter passes bytes in pieces. All arrive but the events of usage, whatever the pieces are.
func FuzzUsageFilter(f *testing.F) {
	const usage = `data: {"choices":[],"usage":{"a":1}}`
	for _, text := range []string{
		"data: a\n\n" + usage + "\n\ndata: [DONE]\n\n", usage + "\r\n\r\nx", "data: {\"choices\":[],\r\ndata: \"usage\":{}}\r\n\r\n", usage, "\r\r\n\n\r", usage + "\r\r" + usage + "\n\n\n",
		"data: " + strings.Repeat("x", longestEvent) + usage + "\n\n" + usage + "\n\n",
	} {
		f.Add(text, uint64(1))
	}
	header := http.Header{"Content-Type": {"text/event-stream"}}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		pass := func(size func() int) []byte {
			filter := &usageFilter{}
			filter.begin(header)
			var out []byte
			for rest := []byte(text); len(rest) > 0; {
				n := min(max(size(), 1), len(rest))
				out = append(out, filter.pass(rest[:n])...)
				rest = rest[n:]
			}
			return append(out, filter.rest()...)
		}
		r := rand.New(rand.NewPCG(seed, 0))
		whole, pieces := pass(func() int { return len(text) }), pass(func() int { return r.IntN(20) })
		if !bytes.Equal(whole, pieces) {
			t.Fatalf("%q became %q, and in pieces %q", text, whole, pieces)
		}
		if !strings.Contains(text, `"usage"`) && string(whole) != text {
			t.Fatalf("%q became %q", text, whole)
		}
	})
}
