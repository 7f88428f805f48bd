// SPDX-License-Identifier: MIT

package respond

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/memstore"
)

// TestRefusalNames writes the names of policies as encoding/json does, also the strange ones.
func TestRefusalNames(t *testing.T) {
	t.Parallel()
	var f Refusal // used again for each response
	for _, names := range [][]string{
		nil, {"plain"}, {"a", "b c"}, {`by "device"`, `\`, "每秒", "<&>", "\x00\n\x7f", "\xff", "", "é"},
	} {
		f.Status, f.RetryAfter, f.Policies = 429, 1500*time.Millisecond, names
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		var problem struct {
			Status int
			Detail string
			Names  json.RawMessage `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatalf("%q: %v in %s", names, err, w.Body)
		}
		want, err := json.Marshal(append([]string{}, names...))
		if err != nil {
			t.Fatal(err)
		}
		if problem.Status != 429 || w.Code != 429 || string(problem.Names) != string(want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// TestRefusalFields sets Retry-After unless no wait helps.
func TestRefusalFields(t *testing.T) {
	t.Parallel()
	var writer fields.Writer
	for never, want := range map[bool][]string{false: {"2"}, true: nil} {
		h := http.Header{}
		f := Refusal{RetryAfter: 1500 * time.Millisecond, Never: never}
		f.SetFields(h, &writer)
		if got := h["Retry-After"]; !slices.Equal(got, want) || h.Get("Cache-Control") != "no-store" {
			t.Errorf("never %v: %v", never, h)
		}
	}
}

// TestReject answers errors that a client causes, and leaves others alone.
func TestReject(t *testing.T) {
	t.Parallel()
	_, strange := Path(&http.Request{Method: "GET", URL: &url.URL{Opaque: "//x/../y"}})
	for _, tc := range []struct {
		err  error
		want int // 0: not answered
	}{
		{strange, 400},
		{fmt.Errorf("reading: %w", paths.ErrLong), 414},
		{fmt.Errorf("reading: %w", os.ErrDeadlineExceeded), 408},
		{errors.New("another"), 0},
	} {
		w := httptest.NewRecorder()
		w.Code = 0
		answered := Reject(w, nil, tc.err, "")
		if answered != (tc.want != 0) || w.Code != tc.want {
			t.Errorf("%v: %v %d, want %d", tc.err, answered, w.Code, tc.want)
		}
		if answered && (w.Header().Get("Cache-Control") != "no-store" || !json.Valid(w.Body.Bytes())) {
			t.Errorf("%v: %v %s", tc.err, w.Header(), w.Body)
		}
	}
}

// TestWatchStatus calls SetStatus once, with the first status that is final.
func TestWatchStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		next http.HandlerFunc
		want []int
	}{
		"nothing":     {func(http.ResponseWriter, *http.Request) {}, nil},
		"body":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, []int{200}},
		"information": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, []int{404}},
		"flush":       {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, []int{200}},
	} {
		var got []int
		watch := Watch{SetStatus: func(status int) { got = append(got, status) }}
		watch.Serve(tc.next, httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestChunk is a number of whole pieces, and at most what a buffer for copying has.
func TestChunk(t *testing.T) {
	t.Parallel()
	for rate, want := range map[Bandwidth]int{
		0:             0,        // no bandwidth
		1:             32 << 10, // a piece of no byte
		1000:          145 * 225,
		100_000:       22_500,
		145_000:       32_625,
		150_000:       32 << 10,
		1_000_000_000: 32 << 10,
	} {
		var paces []Pace
		if rate > 0 {
			paces = []Pace{{Rate: rate}}
		}
		watch := Watch{Paces: paces, Store: memstore.New(memstore.Options{})}
		watch.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if got := Chunk(&wrapped{w}); got != want {
				t.Errorf("at %d bytes a second: %d, want %d", rate, got, want)
			}
		}), httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
}

// wrapped is a ResponseWriter of a handler between.
type wrapped struct{ http.ResponseWriter }

func (w *wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }
