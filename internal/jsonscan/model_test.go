// SPDX-License-Identifier: MIT

package jsonscan

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"
)

// lookUp is the slow model: it returns the value of a valid document at a pointer.
func lookUp(t *testing.T, document []byte, pointer string) Value {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var at any
	if err := decoder.Decode(&at); err != nil {
		t.Fatalf("%q: %v", document, err)
	}
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch in := at.(type) {
		case map[string]any:
			var ok bool
			if at, ok = in[part]; !ok {
				return Value{}
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) || strconv.Itoa(i) != part {
				return Value{}
			}
			at = in[i]
		default:
			return Value{}
		}
	}
	switch v := at.(type) {
	case nil:
		return Value{Kind: Null, Text: []byte("null")}
	case bool:
		return Value{Kind: Bool, Text: strconv.AppendBool(nil, v)}
	case json.Number:
		return Value{Kind: Number, Text: []byte(v)}
	case string:
		return Value{Kind: String, Text: []byte(v)}
	}
	return Value{Kind: Container}
}

// pointers lead to the names that random documents have.
var pointers = []string{"", "/a", "/a/a", "/a/b", "/b/0", "/0", "/1/a", "/0/0/0", "/a~1b", "/é", "/", "//a", "/a/0/b/1", "/�", "/10"}

// checkDocument compares a Scanner with encoding/json. cut gives the lengths of the pieces.
func checkDocument(t *testing.T, document []byte, cut func() int) {
	t.Helper()
	s := New(1<<20, pointers...)
	err := s.ScanAll(document)
	if valid := json.Valid(document); valid != (err == nil) {
		t.Fatalf("%q: %v, and encoding/json says valid: %v", document, err, valid)
	}
	if err == nil {
		for i, p := range pointers {
			if got, want := s.Value(i), lookUp(t, document, p); got.Kind != want.Kind || !bytes.Equal(got.Text, want.Text) || got.Cut {
				t.Fatalf("%q at %q: %s, want %s", document, p, format(got), format(want))
			}
		}
	}
	whole, pieces := New(5, pointers...), New(5, pointers...)
	n, ended := whole.Write(document)
	m, last := 0, false
	for rest := document; len(rest) > 0 && !last; {
		size := min(max(cut(), 1), len(rest))
		var used int
		used, last = pieces.Write(rest[:size])
		if m += used; !last && used != size {
			t.Fatalf("%q: %d of %d bytes used, and not ended", document, used, size)
		}
		rest = rest[size:]
	}
	if n != m || ended != last || whole.Broken() != pieces.Broken() || whole.Twice() != pieces.Twice() {
		t.Fatalf("%q: %d bytes, ended: %v; in pieces %d, %v", document, n, ended, m, last)
	}
	for i, p := range pointers {
		if got, want := format(pieces.Value(i)), format(whole.Value(i)); got != want {
			t.Fatalf("%q at %q: %s in pieces, want %s", document, p, got, want)
		}
	}
}

// randomDocument appends a random value, mostly with names of the pointers.
func randomDocument(r *rand.Rand, b []byte, depth int) []byte {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	space := func() string { return pick("", "", "", " ", "\t", "\r\n") }
	b = append(b, space()...)
	switch n := r.IntN(10); {
	case n < 4 && depth > 0:
		b = append(b, '{')
		for i := range r.IntN(5) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, space()+pick(`"a"`, `"a"`, `"b"`, `"0"`, `""`, `"\u0061"`, `"a/b"`, `"a\/b"`, `"é"`, `"\u00E9"`, "\"\xff\"", `"\ud800"`, `"long name"`)+space()+":"...)
			b = randomDocument(r, b, depth-1)
		}
		b = append(b, space()+"}"...)
	case n < 7 && depth > 0:
		b = append(b, '[')
		for i := range r.IntN(5) {
			if i > 0 {
				b = append(b, ',')
			}
			b = randomDocument(r, b, depth-1)
		}
		b = append(b, space()+"]"...)
	default:
		b = append(b, pick("0", "-0", "1", "12.5", "1e3", "-1E-2", "1.0e+10", "123456", "true", "false", "null", `""`, `"x"`, `"12345"`, `"123456"`,
			`"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d!"`, `"\\\"\n"`, "\"a\xffb\xf0\x9f\"", "\"\xed\xa0\x80\"", `"]}"`)...)
	}
	return append(b, space()...)
}

func TestAgainstEncodingJSON(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		document := randomDocument(r, nil, 5)
		if r.IntN(3) == 0 { // break it
			at := r.IntN(len(document) + 1)
			switch r.IntN(3) {
			case 0:
				document = document[:at]
			case 1:
				document = append(document[:at:at], append([]byte{`{}[],:"\0.eu `[r.IntN(13)]}, document[at:]...)...)
			case 2:
				document = append(document[:at:at], document[min(at+1, len(document)):]...)
			}
		}
		checkDocument(t, document, func() int { return r.IntN(8) })
	}
}

func FuzzScan(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomDocument(r, nil, 4), uint64(r.Int()))
	}
	f.Add([]byte(`{"a":1,"a":{"b":[1,2]},"\u00e9":"\ud83d\ude00"} x`), uint64(1))
	f.Fuzz(func(t *testing.T, document []byte, seed uint64) {
		if len(document) > 1<<16 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		checkDocument(t, document, func() int { return r.IntN(20) })
	})
}
