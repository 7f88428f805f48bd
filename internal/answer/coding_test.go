// SPDX-License-Identifier: MIT

package answer

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// zip compresses some texts. It flushes behind each of them, as servers do with events.
func zip(t testing.TB, texts ...string) []byte {
	t.Helper()
	b, _ := zipParts(t, texts)
	return b
}

// flushed returns the number of bytes that zip has written when it has flushed the last text.
func flushed(t testing.TB, texts []string) int {
	t.Helper()
	_, n := zipParts(t, texts)
	return n
}

func zipParts(t testing.TB, texts []string) (whole []byte, flushed int) {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, text := range texts {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flushed = b.Len()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), flushed
}

// withCoding returns a copy of a header with a content coding.
func withCoding(h http.Header, lines ...string) http.Header {
	h = h.Clone()
	h["Content-Encoding"] = lines
	return h
}

// A Reader knows all that a flushed piece says as soon as the piece has been written.
func TestGzipPieces(t *testing.T) {
	t.Parallel()
	texts := []string{messageStart, messageText, messageDelta, messageStop}
	want := []string{"35/1/300", "35/1/300", "35/15/300", "35/15/300"}
	whole := zip(t, texts...)
	of := sources(t, "anthropic", "bytes")
	r := NewReader(of, withCoding(isStream, "gzip"), nil)
	defer r.End(nil)
	written := 0
	for i := range texts {
		end := flushed(t, texts[:i+1])
		if _, ends := r.Write(whole[written:end]); ends != (i == len(texts)-1) {
			t.Errorf("piece %d ends: %v", i, ends)
		}
		written = end
		if got, _, _ := strings.Cut(result(r, 2), " "); got != want[i] {
			t.Errorf("piece %d: %s, want %s", i, got, want[i])
		}
	}
	r.Write(whole[written:])
	if u, ok := r.Usage(1); !ok || u.Output != int64(len(whole)) {
		t.Errorf("%d bytes, want %d", u.Output, len(whole))
	}
}

// Each body is read in two pieces, for every split, and without a call of End.
func TestCodings(t *testing.T) {
	t.Parallel()
	const body = `{"usage":{"prompt_tokens":12,"completion_tokens":3}}`
	half := len(body) / 2
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	gz := zip(t, body)
	corrupt := bytes.Clone(gz)
	corrupt[len(gz)-8] ^= 1 // the checksum
	var deflated bytes.Buffer
	z := zlib.NewWriter(&deflated)
	if _, err := z.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	decoders := map[string]Decoder{
		"br":   func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
		"none": func(io.Reader) (io.Reader, error) { return strings.NewReader(""), nil },
		"lazy": func(io.Reader) (io.Reader, error) { return lazy{}, nil },
		"bad":  func(io.Reader) (io.Reader, error) { return nil, errors.New("no memory") },
	}
	for _, tc := range []struct {
		name   string
		coding []string
		body   []byte
		want   string
	}{
		{"identity", []string{"identity"}, []byte(body), "12/3/0"},
		{"empty", []string{""}, []byte(body), "12/3/0"},
		{"gzip", []string{"gzip"}, gz, "12/3/0"},
		{"x-gzip", []string{" X-GZip "}, gz, "12/3/0"},
		{"identity and gzip", []string{"identity, gzip"}, gz, "12/3/0"},
		{"members", []string{"gzip"}, join(zip(t, body[:half]), zip(t), zip(t, body[half:])), "12/3/0"},
		{"garbage behind", []string{"gzip"}, join(gz, []byte("garbage")), "12/3/0"},
		{"truncated behind the body", []string{"gzip"}, gz[:flushed(t, []string{body})], "12/3/0"},
		{"truncated", []string{"gzip"}, gz[:20], "none"},
		{"wrong checksum", []string{"gzip"}, corrupt, "12/3/0 unreadable"},
		{"not gzip", []string{"gzip"}, []byte(body), "none"},
		{"gzip without the header", nil, gz, "none"},
		{"unknown", []string{"zstd"}, []byte(body), "none"},
		{"deflate", []string{"deflate"}, deflated.Bytes(), "none"},
		{"two codings", []string{"gzip, gzip"}, []byte(body), "none"},
		{"two lines", []string{"br", "gzip"}, gz, "none"},
		{"by a decoder", []string{"br"}, deflated.Bytes(), "12/3/0"},
		{"a decoder that reads nothing", []string{"none"}, []byte(body), "none"},
		{"a decoder that returns nothing", []string{"lazy"}, []byte(body), "none"},
		{"a decoder that fails", []string{"bad"}, []byte(body), "none"},
	} {
		of := sources(t, "openai")
		for at := range len(tc.body) + 1 {
			r := NewReader(of, withCoding(isJSON, tc.coding...), decoders)
			r.Write(tc.body[:at])
			r.Write(tc.body[at:])
			before := result(r, 1)
			if r.End(nil); before != tc.want || result(r, 1) != tc.want {
				t.Errorf("%s, split at %d: %s, and %s behind End; want %s", tc.name, at, before, result(r, 1), tc.want)
			}
		}
	}
}

// lazy is a decoder that never has a byte.
type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

// closing is a decoder that knows whether it is closed.
type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error {
	*c.closed = true
	return nil
}

func TestEndClosesTheDecoder(t *testing.T) {
	t.Parallel()
	for _, pieces := range []int{1, 2} {
		closed := false
		r := NewReader(sources(t, "/n"), withCoding(isJSON, "x"), map[string]Decoder{
			"x": func(r io.Reader) (io.Reader, error) { return closing{r, &closed}, nil },
		})
		for range pieces {
			r.Write([]byte(`{"n":5}`))
		}
		if r.End(nil); !closed {
			t.Error("the decoder is open behind End")
		}
		if got := result(r, 1); got != "0/5/0" {
			t.Error(got)
		}
	}
	r := NewReader(sources(t, "/n"), withCoding(isJSON, "gzip"), nil)
	r.End(nil) // before any byte
	if _, _ = r.Write(zip(t, `{"n":5}`)); result(r, 1) != "none" {
		t.Error("a Write behind End has been read")
	}
}
