// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
)

// The group answers measures what it costs to read the cost of a response while it is written, on one
// thread and without a network. Both handlers have one rule, and write the same bytes.

// The names that lines mention.
const (
	jsonWorkload    = "a JSON response of 2 kB"
	streamWorkload  = "a stream of 200 events"
	zippedWorkload  = "the same stream in gzip"
	knownBefore     = "Diana, 1 rule, cost: 1"
	knownAfterwards = "Diana, 1 rule, cost: {answer: openai}"
)

func answersGroup() group {
	g := group{name: "answers", title: "Costs that are known with the response", measure: measureAnswers,
		figures: []figure{requestTime, requestAllocs, requestBytes}}
	for _, workload := range []string{jsonWorkload, streamWorkload, zippedWorkload} {
		g.lines = append(g.lines,
			compare(workload, workload, requestTime, knownAfterwards, knownBefore),
			compare("the same: bytes allocated", workload, requestBytes, knownAfterwards, knownBefore))
	}
	return g
}

// usageAsked is the cost of each response, in tokens.
const usageAsked = 27

const usageText = `"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}`

// answered is a response, in the pieces in which it is written.
type answered struct {
	workload string
	header   http.Header
	pieces   [][]byte
}

func answeredAll() ([]answered, error) {
	document := fmt.Appendf(nil, `{"id":"1","choices":[{"message":{"content":"%s"}}],%s}`, strings.Repeat("word ", 380), usageText)
	var events [][]byte
	for i := range 200 {
		events = append(events, fmt.Appendf(nil, `data: {"id":"1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":"word %d"},"finish_reason":null}],"usage":null}`+"\n\n", i))
	}
	events = append(events, []byte(`data: {"id":"1","choices":[],`+usageText+"}\n\n"), []byte("data: [DONE]\n\n"))
	var zipped [][]byte
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, e := range events {
		if _, err := z.Write(e); err != nil {
			return nil, err
		}
		if err := z.Flush(); err != nil {
			return nil, err
		}
		zipped = append(zipped, bytes.Clone(b.Bytes()))
		b.Reset()
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	zipped = append(zipped, b.Bytes())
	stream := http.Header{"Content-Type": {"text/event-stream"}}
	inGzip := stream.Clone()
	inGzip.Set("Content-Encoding", "gzip")
	return []answered{
		{jsonWorkload, http.Header{"Content-Type": {"application/json"}}, [][]byte{document}},
		{streamWorkload, stream, events},
		{zippedWorkload, inGzip, zipped},
	}, nil
}

// ServeHTTP writes the response.
func (a *answered) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for name, lines := range a.header {
		w.Header()[name] = lines
	}
	for _, p := range a.pieces {
		_, _ = w.Write(p) // to nowhere
	}
}

func allowedRequest() *http.Request { return httptest.NewRequest(http.MethodPost, "/v1/chat", nil) }

// nowhere is a ResponseWriter without a client.
type nowhere struct {
	header http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(status int)      { n.status = status }
func (n *nowhere) Write(b []byte) (int, error) { return io.Discard.Write(b) }

func measureAnswers(ctx context.Context, r *run) error {
	all, err := answeredAll()
	if err != nil {
		return err
	}
	names := []string{knownAfterwards, knownBefore}
	sends := make([][]func(), len(all))
	for i := range all {
		for k, cost := range []string{"{answer: openai}", "1"} {
			h, stop, err := openHandler(ctx, fmt.Sprintf("limits: [{url: /, rules: [{algo: W, unit: 24h, rpu: %d, cost: %s}]}]", plenty, cost), &all[i])
			if err != nil {
				return err
			}
			defer stop()
			if err := checkCost(h, []int{usageAsked, 1}[k]); err != nil {
				return fmt.Errorf("%s: %s: %w", all[i].workload, names[k], err)
			}
			request := allowedRequest()
			sends[i] = append(sends[i], func() { h.ServeHTTP(&nowhere{header: http.Header{}}, request) })
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return r.interleave(ctx, len(all), func(_, i int) error {
		for k, c := range costs(sends[i], r.count(4_000, 400)) {
			m := r.row(all[i].workload, names[k], diana)
			m.add(requestTime, c.ns)
			m.add(requestAllocs, c.allocated)
			m.add(requestBytes, c.bytes)
		}
		return nil
	})
}

// checkCost returns an error unless a request costs that much.
func checkCost(h http.Handler, cost int) error {
	var left [2]int
	for i := range left {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, allowedRequest())
		_, text, _ := strings.Cut(w.Header().Get("Ratelimit"), "r=")
		if _, err := fmt.Sscanf(text, "%d", &left[i]); err != nil {
			return fmt.Errorf("no field of the rule: %q", w.Header().Get("Ratelimit"))
		}
	}
	if got := left[0] - left[1]; got != cost {
		return fmt.Errorf("a request costs %d, expected %d", got, cost)
	}
	return nil
}
