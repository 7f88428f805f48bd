// SPDX-License-Identifier: MIT

package decoders

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/diana-limiter/diana/internal/race"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	costs "github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/testproc"
)

// encoder is what the packages of content codings have in common.
type encoder interface {
	io.WriteCloser
	Flush() error
}

var encoders = map[string]func(io.Writer) encoder{
	"gzip": func(w io.Writer) encoder { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) encoder { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) encoder {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		return z
	},
}

var events = []string{
	`data: {"choices": [{"delta": {"content": "Hello"}}], "usage": null}` + "\n\n",
	`data: {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 7}}` + "\n\n",
	"data: [DONE]\n\n",
}

// encoded are the events in a content coding, each flushed.
func encoded(t *testing.T, coding string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := encoders[coding](&b)
	for _, e := range events {
		if _, err := io.WriteString(z, e); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// limited is a limiter with decoders in front of an upstream.
type limited struct {
	url      string
	limiter  *diana.Limiter
	decoders *Decoders
}

func serveLimited(t *testing.T, limits string, upstream http.HandlerFunc) limited {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(limits))
	if err != nil {
		t.Fatal(err)
	}
	d := &Decoders{}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler), Decoders: d.ByCoding()}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := httptest.NewServer(l.Handler(d.Spare(upstream)))
	t.Cleanup(s.Close)
	return limited{s.URL, l, d}
}

// get returns the body of an answer. It asks for a content coding itself, so that the client does not decode.
func (l limited) get(t *testing.T, codings string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, l.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", codings)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.Body
}

// The limiter reads the cost of a response in each content coding, and passes on the bytes that it got.
func TestCostInCodings(t *testing.T) {
	t.Parallel()
	for coding := range encoders {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			body := encoded(t, coding)
			g := serveLimited(t, "limits: [{url: /, rules: [{algo: W, unit: 24h, rpu: 100, cost: {answer: openai}}]}]",
				func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Encoding", coding)
					for i := 0; i < len(body); i += 10 {
						_, _ = w.Write(body[i:min(i+10, len(body))])
						_ = http.NewResponseController(w).Flush()
					}
				})
			got, err := io.ReadAll(g.get(t, coding))
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes, %v, want the %d of the upstream", len(got), err, len(body))
			}
			d, err := g.limiter.Peek(t.Context(), diana.Request{Path: "/"})
			if err != nil || d.Verdicts[0].Remaining != 73 {
				t.Errorf("%v %v, want 73 left", d.Verdicts, err)
			}
			if s := g.limiter.Status().Rules[0]; s.Unsettled != 0 {
				t.Errorf("%d unsettled", s.Unsettled)
			}
		})
	}
}

// coded returns a text in br or zstd with a window of 2^size bytes, ended or flushed.
func coded(t *testing.T, coding string, size int, text []byte, ended bool) []byte {
	t.Helper()
	var b bytes.Buffer
	var w encoder = brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 5, LGWin: size})
	if coding == "zstd" {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<size)); err != nil {
			t.Fatal(err)
		}
	}
	for piece := range slices.Chunk(text, 100_003) { // no block ends where a window does
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	end := w.Flush
	if ended {
		end = w.Close
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var codings = map[string]coding{"br": brotliCoding, "zstd": zstdCoding}

// The declared window of a response is read before a decoder allocates it. A head with a smaller window declares that.
func TestWindows(t *testing.T) {
	t.Parallel()
	for name, c := range codings {
		for size := 10; size <= 24; size++ {
			begin, err := c.begin(bytes.NewReader(coded(t, name, size, []byte("text"), false)))
			if err != nil || begin.window != 1<<size {
				t.Fatalf("%s with a window of 2^%d: %d, %v", name, size, begin.window, err)
			}
			for smaller := int64(firstRoom); smaller < begin.window; smaller *= 2 {
				if again, err := c.begin(bytes.NewReader(begin.with(smaller))); err != nil || again.window != smaller {
					t.Errorf("%s with a window of 2^%d: %d after it has become %d, %v", name, size, again.window, smaller, err)
				}
			}
		}
	}
	for name, texts := range map[string][]string{"br": {"", "\x11"}, "zstd": {"", "text", "\x28\xb5\x2f\xfd"}} {
		for _, text := range texts {
			if _, err := codings[name].begin(strings.NewReader(text)); err == nil {
				t.Errorf("%s of %q has a window", name, text)
			}
		}
	}
}

// farText returns a text of n bytes that repeats itself after each distance. The other parts are random letters.
func farText(n, letters int, distances ...int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 0, n)
	for len(text) < n {
		from := len(text) - distances[random.IntN(len(distances))]
		if from >= 0 && random.IntN(4) > 0 {
			text = append(text, text[from:min(from+9000, len(text))]...)
			continue
		}
		for range 300 {
			text = append(text, byte(random.IntN(letters)))
		}
	}
	return text[:n]
}

// A window grows with what has been decoded, and the text is that of a decoder with the whole window. Little is
// reserved for a short response, whatever window it declares.
func TestWindowsGrow(t *testing.T) {
	t.Parallel()
	const most = 9 << 20
	text := farText(most, 256, 10<<10, 257<<10, 1025<<10, 4097<<10)
	for name, c := range codings {
		for _, size := range []int{16, 20, 22, 24} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				t.Parallel()
				length := min(len(text), 4<<size)
				if size == 24 {
					length = largestWindow - lastDistance - 1
				}
				d := &Decoders{}
				r, err := d.open(c, iotest.HalfReader(bytes.NewReader(coded(t, name, size, text[:length], true))))
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 0, most)
				buf := make([]byte, 4<<10)
				for err == nil {
					var n int
					n, err = r.Read(buf)
					got = append(got, buf[:n]...)
					if used := d.used.Load(); used > 2*max(firstRoom, 2*roomFactor*int64(len(got)+128<<10))+c.beside || used > largestWindow+c.beside {
						t.Fatalf("%d bytes are reserved after %d", used, len(got))
					}
				}
				if !errors.Is(err, io.EOF) || !bytes.Equal(got, text[:length]) {
					t.Errorf("%d bytes, %v; want %d", len(got), err, length)
				}
				if _ = r.Close(); d.used.Load() != 0 || d.noMemory.Load()+d.tooLarge.Load() != 0 {
					t.Errorf("after the end %d bytes are reserved, %d passed unread", d.used.Load(), d.noMemory.Load()+d.tooLarge.Load())
				}
			})
		}
	}
}

// In br, a short part from beyond the window is a word of the dictionary, and no error. So nobody may believe the bytes
// that a decoder returns beyond its window.
func TestWindowBeforeDictionary(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	random := rand.New(rand.NewPCG(5, 6))
	var text []byte
	for len(text) < firstRoom+20_000 {
		for range 6 {
			text = append(text, byte(random.IntN(6)))
		}
		if from := len(text) - firstRoom; from > 0 {
			text = append(text, text[from:from+12]...)
		}
	}
	var b bytes.Buffer
	w := brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 11, LGWin: 22})
	_, _ = w.Write(text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	d := &Decoders{}
	r, err := d.open(brotliCoding, &b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(text))
	}
}

// A response with a window over 8 MiB is decoded up to 8 MiB.
func TestWindowTooLarge(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	text := farText(10<<20, 4, 20<<10)
	for name, c := range codings {
		d := &Decoders{}
		r, err := d.open(c, bytes.NewReader(coded(t, name, 24, text, true)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if !errors.Is(err, costs.ErrNoMemory) || !bytes.HasPrefix(text, got) || len(got) < largestWindow-256<<10 || d.tooLarge.Load() != 1 {
			t.Errorf("%s: %d bytes, %v, %d too large", name, len(got), err, d.tooLarge.Load())
		}
		_ = r.Close()
	}
}

// A decoder allocates no more than it has reserved for a short response, whatever that declares. The test does not
// run in parallel, so that nothing else allocates.
func TestDecoderAllocates(t *testing.T) {
	for name, body := range map[string]string{
		"br":   "\xcf\xff\xff\xff" + strings.Repeat("x", 60), // a window and an uncompressed block of 16 MiB
		"zstd": "\x28\xb5\x2f\xfd\x00\x70\x90\x01\x00" + strings.Repeat("x", 50),
	} {
		d := &Decoders{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := d.open(codings[name], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := io.ReadFull(r, make([]byte, 50))
		runtime.ReadMemStats(&after)
		if got, most := int64(after.TotalAlloc-before.TotalAlloc), d.used.Load(); n != 50 || got > most || most > 4<<20 {
			t.Errorf("%s: %d bytes are decoded and %d allocated, and %d reserved", name, n, got, most)
		}
		_ = r.Close()
	}
}

// A window that needs more memory than is free ends the decoding.
func TestWindowWithoutMemory(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	text := farText(1<<20, 4, 20<<10)
	for name, c := range codings {
		d := &Decoders{}
		r, err := d.open(c, bytes.NewReader(coded(t, name, 22, text, true)))
		if err != nil {
			t.Fatal(err)
		}
		others := decoderMemory - d.used.Load()
		d.reserve(others)
		got, err := io.ReadAll(r)
		if !errors.Is(err, costs.ErrNoMemory) || !bytes.HasPrefix(text, got) || len(got) < firstRoom/2 || d.noMemory.Load() != 1 {
			t.Errorf("%s: %d bytes, %v, %d without memory", name, len(got), err, d.noMemory.Load())
		}
		if _, err := d.open(c, bytes.NewReader(coded(t, name, 22, text, true))); !errors.Is(err, costs.ErrNoMemory) {
			t.Errorf("%s: another decoder: %v", name, err)
		}
		if _ = r.Close(); d.used.Load() != others {
			t.Errorf("%s: %d bytes are reserved, want %d", name, d.used.Load(), others)
		}
	}
}

// A broken or truncated response is decoded at least as far as with the whole window, and its memory is returned.
func TestWindowsOfBrokenResponses(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	text := farText(700<<10, 256, 100, 70<<10)
	const size, head = 22, 20
	for name, c := range codings {
		whole := coded(t, name, size, text, true)
		for n := range 60 {
			random := rand.New(rand.NewPCG(3, uint64(n)))
			body := whole[:head+random.IntN(len(whole)-head)]
			if n%2 == 0 {
				body = bytes.Clone(whole)
				body[head+random.IntN(len(body)-head)] ^= 1 << random.IntN(8)
			}
			plain, err := c.open(bytes.NewReader(body), 1<<size)
			if err != nil {
				t.Fatal(err)
			}
			want, wantErr := io.ReadAll(plain)
			d := &Decoders{}
			r, err := d.open(c, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if room := r.(*growing).room; n%2 == 1 && len(got) < firstRoom/4 && room > firstRoom {
				t.Errorf("%s %d: after %d bytes of a truncated response the window is %d", name, n, len(got), room)
			}
			_ = r.Close()
			if !bytes.HasPrefix(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) || d.used.Load() != 0 || d.tooLarge.Load() != 0 {
				t.Errorf("%s %d: %d bytes, %v, %d reserved, want %d bytes, %v", name, n, len(got), err, d.used.Load(), len(want), wantErr)
			}
		}
	}
}

// Short answers that declare large windows share 64 MiB. While little is left, the upstream is asked for answers
// without br and zstd. An answer for which nothing is left passes as it is, and is charged its length.
func TestDecodersShareMemory(t *testing.T) {
	t.Parallel()
	large := coded(t, "br", 24, []byte(`{"usage": {"completion_tokens": 7}`), false)
	accepted := make(chan string, 1)
	end := make(chan struct{})
	g := serveLimited(t, "limits: [{url: /, rules: [{algo: W, unit: 24h, rpu: 1000000, actor: all, cost: {answer: openai}}]}]",
		func(w http.ResponseWriter, r *http.Request) {
			accepted <- r.Header.Get("Accept-Encoding")
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write(large)
			_ = http.NewResponseController(w).Flush()
			<-end
		})
	each := 2*firstRoom + brotliCoding.beside
	room, spare := decoderMemory/each, (decoderMemory-decoderSpare)/each+1
	const unread = 3
	var bodies []io.ReadCloser
	for n := range room + unread {
		answer := g.get(t, "br;q=1, gzip")
		bodies = append(bodies, answer)
		got := make([]byte, len(large))
		if _, err := io.ReadFull(answer, got); err != nil || !bytes.Equal(got, large) {
			t.Errorf("answer %d changed: %v", n, err)
		}
		want := "br;q=1, gzip"
		if n >= spare {
			want = "gzip"
		}
		if got := <-accepted; got != want {
			t.Errorf("answer %d: the upstream was asked for %q, want %q", n, got, want)
		}
		if used := min(n+1, room) * each; g.decoders.used.Load() != used {
			t.Errorf("answer %d: %d bytes are in use, want %d", n, g.decoders.used.Load(), used)
		}
	}
	if n := g.decoders.noMemory.Load(); n != unread {
		t.Errorf("%d answers passed unread, want %d", n, unread)
	}
	close(end)
	for _, b := range bodies {
		if _, err := io.Copy(io.Discard, b); err != nil {
			t.Error(err)
		}
	}
	testproc.Eventually(t, func() bool { return g.decoders.used.Load() == 0 && g.limiter.Status().Rules[0].Unsettled == unread })
	peek, err := g.limiter.Peek(t.Context(), diana.Request{Path: "/"})
	if want := 1000000 - room*7 - unread*int64(len(large)); err != nil || peek.Verdicts[0].Remaining != want {
		t.Errorf("%d left, %v, want %d", peek.Verdicts[0].Remaining, err, want)
	}
}

func TestWithoutCodings(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                           "identity",
		"br":                         "identity",
		"gzip, br, zstd":             "gzip",
		"BR ;q=0.5, deflate;q=0.2,*": "deflate;q=0.2",
		"identity;q=0, gzip":         "identity;q=0, gzip",
	} {
		if got := strings.Join(withoutCodings([]string{given}), "|"); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
