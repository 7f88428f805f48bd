// SPDX-License-Identifier: MIT

package answer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// dataOf is the slow model: it returns the data of all complete events of a whole text, by the
// steps of the WHATWG. An event without any data is none.
func dataOf(text string) []string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(text, "\ufeff"))
	lines := strings.Split(text, "\n")
	var all, data []string
	for _, line := range lines[:len(lines)-1] { // the last line has no end
		if line == "" {
			if data != nil {
				all = append(all, strings.Join(data, "\n"))
			}
			data = nil
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); name == "data" {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return all
}

// checkEvents compares events with the model. cut gives the lengths of the pieces.
func checkEvents(t *testing.T, text string, cut func() int) {
	t.Helper()
	text = strings.TrimPrefix(text, "\ufeff") // Reader removes it
	var got []string
	var data strings.Builder
	e := events{
		data: func(p []byte) { data.Write(p) },
		end: func() {
			got = append(got, data.String())
			data.Reset()
		},
	}
	for rest := text; rest != ""; {
		n := min(max(cut(), 1), len(rest))
		e.write([]byte(rest[:n]))
		rest = rest[n:]
	}
	if want := dataOf("\ufeff" + text); !slices.Equal(got, want) {
		t.Fatalf("%q: %q, want %q", text, got, want)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"data: a\n\n", "data:a\r\rdata:b\r\n\r\ndata:c\n\r", "data: a\ndata:  b\ndata\ndata:\n\n", "data\n\n", ":data: a\n\ndata: b\n\n",
		"event: x\nid: 1\nretry: 2\ndata: a\n\n", "dataset: a\ndat: b\ndata : c\n data: d\nDATA: e\ndata: f\n\n", "data: a\n", "data: a\n\ndata: b",
		"\n\n\ndata: a: b\n\n\n", "\r\n\r\n", "data: a\r\n\r\n\r\ndata: b\r\n\r\n", "data: \xff\x01\n\n",
	} {
		for size := 1; size <= len(text); size++ {
			checkEvents(t, text, func() int { return size })
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		var text strings.Builder
		for range r.IntN(12) {
			text.WriteString([]string{"data", "data:", "data: ", " ", ":", "x", "\n", "\r", "\r\n", "\n\n", "event: a", "dat", "a"}[r.IntN(13)])
		}
		checkEvents(t, text.String(), func() int { return r.IntN(5) })
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\ndata: b\r\n\r\n:c\rdata\r\r", uint64(1))
	f.Add("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		checkEvents(t, text, func() int { return r.IntN(10) })
	})
}
