// SPDX-License-Identifier: MIT

package answer

import (
	"strconv"
	"testing"
)

func TestParseSource(t *testing.T) {
	t.Parallel()
	const expected = "expected openai, anthropic, gemini, header:NAME, trailer:NAME, bytes, duration or a JSON pointer such as /usage/total_tokens"
	for _, tc := range []struct {
		text, want, mistake string
		parts               bool
	}{
		{"openai", "openai", "", true},
		{"anthropic", "anthropic", "", true},
		{"gemini", "gemini", "", true},
		{"bytes", "bytes", "", false},
		{"duration", "duration", "", false},
		{"/usage/total_tokens", "/usage/total_tokens", "", false},
		{"/", "/", "", false},
		{"header:x-cost", "header:X-Cost", "", false},
		{"trailer:grpc-cost", "trailer:Grpc-Cost", "", false},
		{"/a~", "", "expected ~0 for ~ and ~1 for / in a JSON pointer", false},
		{"", "", expected, false},
		{"OpenAI", "", expected, false},
		{"header", "", expected, false},
		{"usage/total_tokens", "", expected, false},
		{"header:", "", `expected the name of a header after header:`, false},
		{"trailer:a b", "", `expected the name of a header after trailer:`, false},
	} {
		s, err := ParseSource(tc.text)
		if err != nil {
			if err.Error() != tc.mistake {
				t.Errorf("%q: %v, want %q", tc.text, err, tc.mistake)
			}
			continue
		}
		if s.String() != tc.want || tc.mistake != "" || s.HasParts() != tc.parts {
			t.Errorf("%q: %v, parts: %v; want %q and the mistake %q", tc.text, s, s.HasParts(), tc.want, tc.mistake)
		}
		if again, err := ParseSource(s.String()); err != nil || again != s {
			t.Errorf("%q: %v is read as %v, %v", tc.text, s, again, err)
		}
		if (s == Duration) != (tc.text == "duration") {
			t.Errorf("%q is the duration: %v", tc.text, s == Duration)
		}
	}
}

// A zero Source says nothing.
func TestZeroSource(t *testing.T) {
	t.Parallel()
	r := NewReader(make([]Source, 1), isJSON, nil)
	defer r.End(nil)
	r.Write([]byte("5"))
	if u, ok := r.Usage(0); ok || u != (Usage{}) {
		t.Errorf("%+v, %v", u, ok)
	}
}

func TestParseCount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]count{
		"0": {0, known}, "7": {7, known}, "007": {7, known}, "1.0": {1, known}, "1e3": {1000, known}, "12.5e1": {125, known}, "5e-1": {1, known},
		"999999999999998": {999_999_999_999_998, known}, "999999999999998.5": {MaxCount, known}, "999999999999999.5": {MaxCount, known}, "9007199254740993": {MaxCount, known},
		"1e400": {MaxCount, known}, "-1e400": {0, unreadable}, "-0.0": {0, known}, "0e9": {0, known}, "1e-999": {1, known}, "-1e-999": {0, unreadable}, "0.2": {1, known}, "-1.5": {0, unreadable}, "-7": {0, unreadable}, "1.5": {2, known},
		"": {0, unreadable}, "+": {0, unreadable}, "1,000": {0, unreadable}, "1_000": {0, unreadable}, "0x1p4": {0, unreadable}, "Infinity": {0, unreadable},
		"nan": {0, unreadable}, " 1": {0, unreadable}, "e": {0, unreadable}, "1e": {0, unreadable}, "E": {0, unreadable},
	} {
		if got := parseCount(text, 1); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for n := int64(MaxCount); n > 0; n = n*7/10 - 1 {
		if got := parseCount(strconv.FormatInt(n, 10), 1); got != (count{n, known}) {
			t.Errorf("%d: %v", n, got)
		}
	}
}
