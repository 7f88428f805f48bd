// SPDX-License-Identifier: MIT

package respond

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/diana-limiter/diana/internal/requestbody"
)

// pieces is a body that arrives in pieces of random sizes.
type pieces struct {
	rest   []byte
	random *rand.Rand
	ends   error // after the last piece
	with   bool  // the last piece comes with ends
	closed bool
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, p.ends
	}
	n := copy(b, p.rest[:1+p.random.IntN(len(p.rest))])
	if p.rest = p.rest[n:]; len(p.rest) == 0 && p.with {
		return n, p.ends
	}
	return n, nil
}

func (p *pieces) Close() error { p.closed = true; return nil }

func post(body io.ReadCloser, length int64) *http.Request {
	r := httptest.NewRequest("POST", "/", nil)
	r.Body, r.ContentLength = body, length
	return r
}

// readAt returns the values of a body at JSON pointers.
func readAt(b *Bodies, r *http.Request, pointers []string) ([]requestbody.Value, error) {
	read, err := b.Read(r, &requestbody.Query{Pointers: pointers})
	return read.Values, err
}

// TestBodyBytes reads bodies that arrive in any pieces. The next reader gets the same bytes, in any pieces,
// and the same error.
func TestBodyBytes(t *testing.T) {
	t.Parallel()
	var b Bodies
	random := rand.New(rand.NewPCG(1, 2))
	broken := errors.New("broken")
	short := []int{0, 1, 10, firstSize - 1, firstSize, firstSize + 1, 3 * firstSize}
	long := []int{requestbody.MaxSize - 100, requestbody.MaxSize - 10, requestbody.MaxSize, 2 * requestbody.MaxSize}
	for i := range 800 {
		size := short[random.IntN(len(short))]
		if i%40 == 0 {
			size = long[random.IntN(len(long))]
		}
		text := append([]byte(`{"m":"x"}`), bytes.Repeat([]byte(" \n"), size/2)...)
		if size == 0 {
			text = nil
		}
		ends := []error{io.EOF, broken, os.ErrDeadlineExceeded, io.ErrUnexpectedEOF}[max(0, random.IntN(8)-4)]
		in := &pieces{rest: text, random: random, ends: ends, with: random.IntN(2) == 0}
		length := int64(-1)
		if random.IntN(2) == 0 && errors.Is(ends, io.EOF) {
			length = int64(len(text))
		}
		r := post(in, length)
		values, err := readAt(&b, r, []string{"/m"})
		again, errAgain := readAt(&b, r, []string{"/m"})
		if fmt.Sprint(values, err) != fmt.Sprint(again, errAgain) {
			t.Fatalf("%v, %v; again %v, %v", values, err, again, errAgain)
		}
		switch want := len(text) <= requestbody.MaxSize && errors.Is(ends, io.EOF); {
		case (err == nil) != want:
			t.Fatalf("%d bytes and %v: %v", len(text), ends, err)
		case err == nil && len(text) > 0 && values[0].Actor != "x":
			t.Fatalf("%d bytes: %v", len(text), values)
		}
		got, err := io.ReadAll(sometimesOneByte(r.Body, random))
		if errors.Is(ends, io.EOF) {
			ends = nil
		}
		if !bytes.Equal(got, text) || !errors.Is(err, ends) || length >= 0 && r.ContentLength != length {
			t.Fatalf("%d bytes and %v: %d bytes and %v are left", len(text), ends, len(got), err)
		}
		b.Release(r.Body)
		if n, err := r.Body.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatalf("after Release: %d bytes, %v", n, err)
		}
		if err := r.Body.Close(); err != nil || !in.closed {
			t.Fatalf("Close: %v, closed %v", err, in.closed)
		}
	}
	if n := b.held.Load(); n != 0 {
		t.Errorf("%d bytes are held after all", n)
	}
}

func sometimesOneByte(r io.Reader, random *rand.Rand) io.Reader {
	if random.IntN(4) == 0 {
		return iotest.HalfReader(r)
	}
	return r
}

// TestBodySplits reads a short body at every split in two.
func TestBodySplits(t *testing.T) {
	t.Parallel()
	const text = `{"a":{"b":[1,"é"]},"m":"x\u00e9"}`
	for i := range len(text) + 1 {
		var b Bodies
		r := post(io.NopCloser(io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:]))), -1)
		values, err := readAt(&b, r, []string{"/m", "/a/b/1"})
		if err != nil || values[0].Actor != "xé" || values[1].Actor != "é" {
			t.Errorf("at %d: %v, %v", i, values, err)
		}
		if got, err := io.ReadAll(iotest.OneByteReader(r.Body)); string(got) != text || err != nil {
			t.Errorf("at %d: %q, %v", i, got, err)
		}
		if n := b.held.Load(); n != 0 {
			t.Errorf("at %d: %d bytes are held after the end", i, n)
		}
	}
}

// TestBodyMistakes rejects bodies that rules cannot read.
func TestBodyMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		length     int64
		ends       error
		coding     []string
		want       string
	}{
		{"announced", "", requestbody.MaxSize + 1, io.EOF, nil, "body_length 413"},
		{"too large", strings.Repeat(" ", requestbody.MaxSize) + "1", -1, io.EOF, nil, "body_length 413"},
		{"largest", strings.Repeat(" ", requestbody.MaxSize-1) + "1", requestbody.MaxSize, io.EOF, nil, ""},
		{"a filter", "{", -1, &http.MaxBytesError{Limit: 1}, nil, "body_length 413"},
		{"late", "{", -1, os.ErrDeadlineExceeded, nil, "body_timeout 408"},
		{"broken", "{}", -1, io.ErrUnexpectedEOF, nil, "body_incomplete 400"},
		{"no JSON", "a=b", 3, io.EOF, nil, "body 400"},
		{"twice", `{"m":1,"m":2}`, -1, io.EOF, nil, "body 400"},
		{"another key twice", `{"a":1,"a":2}`, -1, io.EOF, nil, ""},
		{"gzip", "{}", -1, io.EOF, []string{"gzip"}, "body 400"},
		{"gzip second", "{}", -1, io.EOF, []string{"", "gzip"}, "body 400"},
		{"identity", "{}", -1, io.EOF, []string{"Identity", ""}, ""},
		{"empty", "", -1, io.EOF, nil, ""},
	} {
		var b Bodies
		r := post(&pieces{rest: []byte(tc.text), random: rand.New(rand.NewPCG(1, 1)), ends: tc.ends}, tc.length)
		r.Header["Content-Encoding"] = tc.coding
		_, err := readAt(&b, r, []string{"/m"})
		got := ""
		if mistake := (*BodyError)(nil); errors.As(err, &mistake) {
			got = fmt.Sprint(mistake.Reason, " ", mistake.Status)
			if w := httptest.NewRecorder(); !Reject(w, nil, err, "") || w.Code != mistake.Status || !strings.Contains(w.Body.String(), mistake.detail) {
				t.Errorf("%s: %d %s", tc.name, w.Code, w.Body)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %v (%s), want %s", tc.name, err, got, tc.want)
		}
	}
}

// TestBodyTypes rejects bodies that a server could read as another text than JSON.
func TestBodyTypes(t *testing.T) {
	t.Parallel()
	const form, both = "application/x-www-form-urlencoded", `{"m":"cheap","x":"&m=dear&"}`
	for _, tc := range []struct {
		text  string
		types []string
		ok    bool
	}{
		{both, nil, true},
		{both, []string{"application/json"}, true},
		{both, []string{"text/plain; charset=UTF-8"}, true},
		{both, []string{form}, false},
		{both, []string{" Application/X-WWW-Form-Urlencoded ;a=b"}, false},
		{both, []string{"application/json", form}, false},
		{`{"m":"=","x":";"}`, []string{form}, false},
		{`{"m":"x"}`, []string{form}, true}, // curl -d
		{`{"m":"x"}`, []string{`application/json;charset="utf-8"`}, true},
		{`{"m":"x"}`, []string{"application/json; charset=utf-7"}, false},
		{`{"m":"x"}`, []string{"application/json; Charset=ibm037"}, false},
		{`{"m":"x"}`, []string{"application/json; charset"}, false},
		{`{"m":"x"}`, []string{"application/json; charset=utf-8; charset=utf-7"}, false},
		{`{"m":"x"}`, []string{"application/json", "application/json; charset=utf-16"}, false},
	} {
		var b Bodies
		r := post(&pieces{rest: []byte(tc.text), random: rand.New(rand.NewPCG(1, 1)), ends: io.EOF}, int64(len(tc.text)))
		r.Header["Content-Type"] = tc.types
		if _, err := readAt(&b, r, []string{"/m"}); (err == nil) != tc.ok {
			t.Errorf("%s with %q: %v", tc.text, tc.types, err)
		}
	}
}

// TestBodiesMemory holds no more than MaxBodies, whatever clients announce.
func TestBodiesMemory(t *testing.T) {
	t.Parallel()
	var b Bodies
	text := []byte(strings.Repeat(" ", requestbody.MaxSize-1) + "1")
	var held []*http.Request
	for {
		r := post(io.NopCloser(bytes.NewReader(text)), -1)
		_, err := readAt(&b, r, []string{"/m"})
		if err != nil {
			if !errors.Is(err, errBodySpace) || len(held) < MaxBodies/(requestbody.MaxSize+1)-1 {
				t.Fatalf("%v after %d bodies", err, len(held))
			}
			w := httptest.NewRecorder()
			if !Reject(w, nil, err, "") || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			if got, err := io.ReadAll(r.Body); !bytes.Equal(got, text) || err != nil { // of a rule in shadow mode
				t.Errorf("%d bytes, %v", len(got), err)
			}
			break
		}
		held = append(held, r)
		if b.held.Load() > MaxBodies || len(held) > MaxBodies/requestbody.MaxSize {
			t.Fatalf("%d bodies and %d bytes", len(held), b.held.Load())
		}
	}
	announced := post(io.NopCloser(strings.NewReader("{}")), requestbody.MaxSize)
	b.Release(held[0].Body)
	before := b.held.Load()
	if _, err := readAt(&b, announced, []string{"/m"}); err != nil || b.held.Load()-before > firstSize {
		t.Errorf("%v; a short body takes %d bytes", err, b.held.Load()-before)
	}
}

// TestIncludeUsageLength adjusts the length of a changed body, if it is known.
func TestIncludeUsageLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 15} {
		var b Bodies
		r := post(io.NopCloser(strings.NewReader(`{"stream":true}`)), length)
		r.Header.Set("Content-Length", "15")
		if length < 0 {
			r.Header.Del("Content-Length")
		}
		if _, err := readAt(&b, r, requestbody.UsagePointers); err != nil {
			t.Fatal(err)
		}
		b.Change(r, requestbody.IncludeUsage)
		got, err := io.ReadAll(r.Body)
		if want := `{"stream_options":{"include_usage":true},"stream":true}`; string(got) != want || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		header := r.Header.Get("Content-Length")
		if length < 0 && (r.ContentLength != -1 || header != "") || length > 0 && (r.ContentLength != int64(len(got)) || header != fmt.Sprint(len(got))) {
			t.Errorf("length %d, header %q for %d bytes", r.ContentLength, header, len(got))
		}
		b.Change(r, requestbody.IncludeUsage) // has been read
		if n := b.held.Load(); n != 0 {
			t.Errorf("%d bytes are held after the end", n)
		}
	}
}

// FuzzBody reads any body in pieces. The next reader gets the same bytes.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"m":1}`), uint64(1))
	f.Add([]byte(`{"m":1,"m":2}`), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		var b Bodies
		r := post(&pieces{rest: text, random: rand.New(rand.NewPCG(seed, 0)), ends: io.EOF}, -1)
		values, err := readAt(&b, r, []string{"/m", "/a/0"})
		want, wantErr := requestbody.Read(text, &requestbody.Query{Pointers: []string{"/m", "/a/0"}})
		if len(text) == 0 {
			want, wantErr = requestbody.Reading{}, nil
		}
		if fmt.Sprint(values) != fmt.Sprint(want.Values) || (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %v, %v, want %v, %v", text, values, err, want, wantErr)
		}
		if got, err := io.ReadAll(r.Body); !bytes.Equal(got, text) || err != nil || b.held.Load() != 0 {
			t.Errorf("%q: %q, %v, %d held", text, got, err, b.held.Load())
		}
	})
}
