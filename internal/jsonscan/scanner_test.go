// SPDX-License-Identifier: MIT

package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"
)

// format writes a value as the tables expect it.
func format(v Value) string {
	if v.Cut {
		return "cut"
	}
	switch v.Kind {
	case None:
		return "none"
	case Container:
		return "container"
	case String:
		return fmt.Sprintf("%q", v.Text)
	}
	return string(v.Text)
}

func TestValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, document, pointer, want string }{
		{"number", `{"a":{"b":12}}`, "/a/b", "12"},
		{"white space", " {\t\"a\" :\r\n12 } ", "/a", "12"},
		{"number as written", `{"a":-1.50E+3}`, "/a", "-1.50E+3"},
		{"the whole document", `"x"`, "", `"x"`},
		{"a container", `{"a":[]}`, "/a", "container"},
		{"true", `{"a":true}`, "/a", "true"},
		{"false", `[false]`, "/0", "false"},
		{"null", `{"a":null}`, "/a", "null"},
		{"missing", `{"b":1,"a ":2,"aa":3,"":4}`, "/a", "none"},
		{"other level", `{"b":{"a":1},"c":[{"a":2}]}`, "/a", "none"},
		{"empty key", `{"":{"":7}}`, "//", "7"},
		{"trailing slash", `{"a":{"":7}}`, "/a/", "7"},
		{"escaped pointer", `{"a/b":{"m~n":8}}`, "/a~1b/m~0n", "8"},
		{"escape of an escape", `{"~1":9}`, "/~01", "9"},
		{"escaped key", `{"\u0061\u002Fb":1}`, "/a~1b", "1"},
		{"escaped text", `{"a":"\"\\\/\b\f\n\r\t\u00e9"}`, "/a", `"\"\\/\b\f\n\r\té"`},
		{"surrogate pair", `{"a":"\ud83d\ude00"}`, "/a", `"😀"`},
		{"half pairs", `{"a":"\ud83d\ud83d\ude00\ude00x\ud83d"}`, "/a", `"�😀�x�"`},
		{"not UTF-8", "{\"a\":\"x\xff\xc3y\"}", "/a", `"x��y"`},
		{"index", `[[1,2],[3,{"a":4}]]`, "/1/1/a", "4"},
		{"index behind containers", `[[],{},[[]],{"a":{}},5]`, "/4", "5"},
		{"index beyond the end", `[1]`, "/1", "none"},
		{"no index", `[1,2]`, "/01", "none"},
		{"after the last", `[1,2]`, "/-", "none"},
		{"index as a key", `{"1":2}`, "/1", "2"},
		{"key twice", `{"a":1,"a":2}`, "/a", "2"},
		{"key twice, null last", `{"a":1,"a":null}`, "/a", "null"},
		{"object twice", `{"a":{"b":1},"a":{"c":2}}`, "/a/b", "none"},
		{"object and number", `{"a":{"b":1},"a":3}`, "/a/b", "none"},
		{"array twice", `{"a":[1,2],"a":[3]}`, "/a/1", "none"},
		{"as long as the limit", `{"a":"1234567890123456"}`, "/a", `"1234567890123456"`},
		{"too long", `{"a":"12345678901234567"}`, "/a", "cut"},
		{"a number too long", `{"a":123456789012345.9}`, "/a", "cut"},
		{"long, then short", `{"a":"12345678901234567","a":5}`, "/a", "5"},
		{"truncated after the value", `{"a":1,"b`, "/a", "1"},
		{"truncated in the value", `{"a":1`, "/a", "none"},
		{"broken after the value", `{"a":1}}`, "/a", "1"},
		{"broken before the value", `{"b":01,"a":1}`, "/a", "none"},
	} {
		s := New(16, "/other", tc.pointer)
		for _, b := range []byte(tc.document) {
			s.Write([]byte{b})
		}
		if got := format(s.Value(1)); got != tc.want {
			t.Errorf("%s: %s at %q is %s, want %s", tc.name, tc.document, tc.pointer, got, tc.want)
		}
	}
}

// Pointers may be equal, and one may lead through the value of another.
func TestSeveralPointers(t *testing.T) {
	t.Parallel()
	s := New(100, "/a", "/a/b", "/a", "/a/b/0", "/c", "")
	if err := s.ScanAll([]byte(`{"a":{"b":["x"]},"c":7}`)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"container", "container", "container", `"x"`, "7", "container"} {
		if got := format(s.Value(i)); got != want {
			t.Errorf("pointer %d: %s, want %s", i, got, want)
		}
	}
	if err := s.ScanAll([]byte(`{"c":1}`)); err != nil || format(s.Value(3)) != "none" || format(s.Value(4)) != "1" {
		t.Errorf("%v; the second document has %s and %s", err, format(s.Value(3)), format(s.Value(4)))
	}
}

func TestTwice(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]bool{
		`{"a":{"b":1}}`:                         false,
		`{"a":{"b":1,"b":1}}`:                   true,
		`{"a":{"b":1},"a":{}}`:                  true,
		`{"a":1,"\u0061":1}`:                    true,
		`{"x":1,"x":2,"a":{"x":1,"x":2}}`:       false,
		`{"x":{"a":1,"a":2},"a":{"y":{"b":1}}}`: false,
		`[{"a":1},{"a":1}]`:                     false,
	} {
		s := New(100, "/a/b", "/c")
		if err := s.ScanAll([]byte(document)); err != nil || s.Twice() != want {
			t.Errorf("%s: twice %v, error %v", document, s.Twice(), err)
		}
	}
}

func TestScanAll(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for document, want := range map[string]error{
		`{"a":[1,2,{}]}`: nil, "5": nil, " -0.1e-5\n": nil, `""`: nil, "null": nil,
		"": ErrTruncated, "{": ErrTruncated, "nul": ErrTruncated, "-": ErrTruncated, `"\u00`: ErrTruncated, "1e": ErrTruncated,
		"{}x": ErrSyntax, "[1,]": ErrSyntax, `{"a":1,}`: ErrSyntax, "{1:2}": ErrSyntax, "[1 2]": ErrSyntax, "{]": ErrSyntax,
		`["a":1]`: ErrSyntax, `{"a",1}`: ErrSyntax, "01": ErrSyntax, "1.": ErrTruncated, "+1": ErrSyntax, "nulL": ErrSyntax,
		"\"\n\"": ErrSyntax, `"\x"`: ErrSyntax, `"\u00g0"`: ErrSyntax, "{}{}": ErrSyntax, "\ufeff{}": ErrSyntax, "[1}": ErrSyntax,
		deep(MaxDepth): nil, deep(MaxDepth + 1): ErrDepth, deep(100_000): ErrDepth,
	} {
		if err := New(100, "/a").ScanAll([]byte(document)); !errors.Is(err, want) {
			t.Errorf("%.40s: %v, want %v", document, err, want)
		}
		if !errors.Is(want, ErrDepth) && json.Valid([]byte(document)) != (want == nil) {
			t.Errorf("encoding/json disagrees about %.40s", document)
		}
	}
}

// The scanner reads a value behind levels that are too deep for its checks.
func TestBehindDeepLevels(t *testing.T) {
	t.Parallel()
	const n = 100_000
	document := `{"x":` + strings.Repeat(`{"]":[`, n) + `"[\"{"` + strings.Repeat("]}", n) + `,"a":7}`
	s := New(100, "/a")
	if err := s.ScanAll([]byte(document)); !errors.Is(err, ErrDepth) || format(s.Value(0)) != "7" {
		t.Errorf("%v, %s", err, format(s.Value(0)))
	}
	if len(s.objects)*64 > MaxDepth+64 {
		t.Errorf("the scanner remembers %d levels", len(s.objects)*64)
	}
}

func TestCheckPointer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "/": "", "/a/~0~1/0": "", "/~01": "",
		"a":    "expected a JSON pointer such as /usage/total_tokens",
		"#/a":  "expected a JSON pointer such as /usage/total_tokens",
		"/~":   "expected ~0 for ~ and ~1 for / in a JSON pointer",
		"/a~2": "expected ~0 for ~ and ~1 for / in a JSON pointer",
	} {
		if err := CheckPointer(text); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A string of 100 MB needs no memory, and neither do long keys and numbers, and many elements.
func TestMemory(t *testing.T) {
	for name, tc := range map[string]struct{ begin, repeat, end string }{
		"string":           {`{"x":"`, `aé\n\ud83d`, `","a":7}`},
		"value":            {`{"a":"`, `aé\n\ud83d`, `","a":7}`},
		"key":              {`{"`, `aé\n\ud83d`, `":1,"a":7}`},
		"number":           {`{"x":0.`, `123456789`, `,"a":7}`},
		"elements":         {`{"x":[1`, `,{"a":[1,"b"]}`, `],"a":7}`},
		"keys":             {`{"x":1`, `,"key":null`, `,"a":7}`},
		"values of a":      {`{"a":1`, `,"a":"value","a":{"b":1}`, `,"a":7}`},
		"arrays in arrays": {``, `[`, ``},
	} {
		s := New(100, "/a", "/a/b", "/x/4000000000/b")
		chunk := []byte(strings.Repeat(tc.repeat, (64<<10)/len(tc.repeat)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.Write([]byte(tc.begin))
		size := 8 << 20
		switch {
		case race.Enabled || testing.Short():
			size = 1 << 20
		case name == "string":
			size = 100 << 20
		}
		for n := 0; n < size; n += len(chunk) {
			s.Write(chunk)
		}
		s.Write([]byte(tc.end))
		runtime.ReadMemStats(&after)
		if total := after.TotalAlloc - before.TotalAlloc; total > 64<<10 {
			t.Errorf("%s: %d bytes allocated", name, total)
		}
		if tc.end != "" && (format(s.Value(0)) != "7" || s.Broken()) {
			t.Errorf("%s: %s, broken: %v", name, format(s.Value(0)), s.Broken())
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	document := []byte(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("word ", 200) +
		`"}}],"usage":{"prompt_tokens":12,"completion_tokens":345}}`)
	s := New(100, "/usage/prompt_tokens", "/usage/completion_tokens")
	b.SetBytes(int64(len(document)))
	b.ReportAllocs()
	for b.Loop() {
		s.Reset()
		s.Write(document)
	}
}
