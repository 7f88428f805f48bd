// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/diana-limiter/diana"
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

// The gateway reads the cost of a response in each content coding, and passes on the bytes that it got.
func TestCostInCodings(t *testing.T) {
	t.Parallel()
	for coding := range encoders {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			body := encoded(t, coding)
			g := start(t, "limits: [{url: /, rules: [{algo: W, unit: 24h, rpu: 100, cost: {answer: openai}}]}]",
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Encoding", coding)
					for i := 0; i < len(body); i += 10 {
						_, _ = w.Write(body[i:min(i+10, len(body))])
						_ = http.NewResponseController(w).Flush()
					}
				}))
			got := g.get("/", "Accept-Encoding: "+coding) // so that the client does not decode
			if got.status != http.StatusOK || !strings.HasPrefix(got.body, string(body)) || len(got.body) != len(body) {
				t.Errorf("status %d, %d bytes, want the %d of the upstream", got.status, len(got.body), len(body))
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
