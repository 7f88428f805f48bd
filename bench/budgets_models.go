// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/billtest"
)

// LiteLLM needs a stack of servers, so its budget is a model, written from what its source does at a commit. Both
// rivals get the prices of the provider, and decide and count at once, without delays or caches.

// litellmKeeper is a model of LiteLLM at 0165b7d8540a, litellm/proxy/spend_tracking/budget_reservation.py:
//   - The first of three names of a maximum counts, or else 16,384, and never more than the model's largest output. n or
//     best_of multiply it, prompts do not. The input has the price of input. The model counts it as bytes, for the
//     source counts tokens.
//   - If the rest of the budget is smaller than that, the request reserves the rest and is allowed.
//   - A request that reserves nothing is allowed while the budget is not spent.
//   - If the client leaves, the input is charged. The model adds the text that was sent.
func litellmKeeper() keeper {
	return keeper{"model of LiteLLM", measure.Rival, func(_ context.Context, format string, next http.Handler) (*kept, error) {
		var mu sync.Mutex
		var spent int64
		return &kept{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client is gone
			}
			var all map[string]any
			if json.Unmarshal(body, &all) != nil {
				http.Error(w, "no JSON", http.StatusBadRequest)
				return
			}
			out, times := int64(16_384), int64(1)
			for _, key := range []string{"max_output_tokens", "max_tokens", "max_completion_tokens"} { // the last one counts
				if n, ok := pythonInt(all[key]); ok {
					out = n
				}
			}
			for _, key := range []string{"n", "best_of"} {
				if n, ok := pythonInt(all[key]); ok {
					times = max(times, n)
				}
			}
			in := int64(len(body)) + 50
			reserved := max(0, in+3*times*min(out, billtest.Most))
			mu.Lock()
			if rest := budgetLimit - spent; rest <= 0 {
				mu.Unlock()
				http.Error(w, "used up", http.StatusTooManyRequests)
				return
			} else if reserved > rest {
				reserved = rest
			}
			spent += reserved
			mu.Unlock()
			a := &answerOf{ResponseWriter: w, gone: r.Context()}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(a, r)
			cost, ok := a.cost(format)
			if !ok {
				cost = in + 3*int64(strings.Count(a.text.String(), "word"))
			}
			mu.Lock()
			defer mu.Unlock()
			spent += cost - reserved
		}), func() int64 { return spent }, func() {}}, nil
	}}
}

// pythonInt returns what int() of Python makes of a value.
func pythonInt(v any) (int64, bool) {
	switch v := v.(type) {
	case float64:
		return int64(v), true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// envoyKeeper asks envoyproxy/ratelimit with an addend of 0 for each request, and tells it the cost by the addend of
// another call, when the answer has ended. This is how Envoy uses it with apply_on_stream_done. A stream whose client
// leaves has no end, and Envoy does not ask for the usage in a client's place. Kuadrant counts likewise.
func envoyKeeper(url string) keeper {
	budgets := 0
	return keeper{rivals.Envoy + ", addend afterwards", measure.Rival, func(_ context.Context, format string, next http.Handler) (*kept, error) {
		budgets++
		var spent atomic.Int64
		count := func(cost int64) (fits bool) {
			text := fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":"budget","value":"%d"}],"hitsAddend":"%d"}]}`, rivals.EnvoyDomain, budgets, cost)
			answer, err := http.Post(url, "application/json", strings.NewReader(text))
			if err != nil {
				panic(err)
			}
			_ = answer.Body.Close() // only the status counts
			if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
				panic(rivals.Envoy + ": " + answer.Status)
			}
			return answer.StatusCode == http.StatusOK
		}
		return &kept{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !count(0) {
				http.Error(w, "used up", http.StatusTooManyRequests)
				return
			}
			a := &answerOf{ResponseWriter: w, gone: r.Context()}
			next.ServeHTTP(a, r)
			if cost, ok := a.cost(format); ok {
				spent.Add(cost)
				count(cost)
			}
		}), spent.Load, func() {}}, nil
	}}
}

// answerOf keeps what was sent before the client left.
type answerOf struct {
	http.ResponseWriter
	gone context.Context
	text bytes.Buffer
}

func (a *answerOf) Write(p []byte) (int, error) {
	if a.gone.Err() != nil {
		return 0, a.gone.Err()
	}
	a.text.Write(p)
	return a.ResponseWriter.Write(p)
}

// cost returns the price of the usage in an answer, or false if it has none.
func (a *answerOf) cost(format string) (cost int64, ok bool) {
	for line := range strings.Lines(a.text.String()) {
		var v struct {
			Usage *struct {
				In      int64 `json:"prompt_tokens"`
				Out     int64 `json:"completion_tokens"`
				Details struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
				Written int64 `json:"cache_creation_input_tokens"`
				Output  int64 `json:"output_tokens"`
			}
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) != nil || v.Usage == nil {
			continue
		}
		u := v.Usage
		cost, ok = u.In-u.Details.Cached/2+3*u.Out, true
		if format == "anthropic" {
			cost = 2*u.Written + 3*u.Output
		}
	}
	return cost, ok
}
