// SPDX-License-Identifier: MIT

package rule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reservation says what a request reserves until the usage of its response is known, by the JSON body of the
// request. Only Handler reads a body, see [Request]. A request without one reserves Or tokens of output, and at
// least Min.
//
// The tokens are weighted like those of the usage, and those of the input by the dearest of Input, Cached and the
// writes to a cache. The numbers n, best_of and candidateCount, and the number of prompts, multiply the output.
type Reservation struct {
	// Output are JSON pointers to the most tokens of the response. The largest number counts. With Auto they are
	// all names of the format of Cost.Answer, and Output is empty.
	Output []string
	Auto   bool

	Or   int64 // tokens of output of a request that names none; 0 means 1
	Most int64 // with Set, the largest number that a request may name; 0 means Or

	// Set refuses a request whose body names something else than 1 to Most. It writes Or under the first name if
	// the body names nothing.
	Set bool

	// Input says how the tokens of the request are counted. "" counts none, and "estimate" the bytes of the body / 4.
	// "bytes" counts the bytes x Expand + Add, which is never below the tokens of text.
	Input       string
	Expand, Add int64 // Expand of 0 means 1
	Min         int64 // the least reservation in all

	// Strict refuses a request that can cost more than its reservation: it has content outside of its body, tools of
	// the provider, or a member that Diana does not know. It needs Set and the Input "bytes".
	Strict bool
}

// Weights are what tokens of each kind cost. The sum is rounded up.
type Weights struct {
	Input, Output, Cached float64

	// CacheWrite is for a token that the provider writes to its cache, and CacheWrite1h for one that stays there for
	// an hour. 0 means as Input, and as CacheWrite.
	CacheWrite, CacheWrite1h float64

	Request float64 // the request itself

	// Above are the weights of requests with more tokens of input than their Tokens, in ascending order.
	Above  []Weights
	Tokens int64

	// By is "body:" and the JSON pointer of the model's name. Then Models has the weights, and the fields above mean
	// nothing. A name that ends with "*" is for all names that begin so. An exact name goes first, then the longest.
	By     string
	Models map[string]Weights

	// Dearest charges a model that is not in Models the dearest weight of each kind. Otherwise its requests are
	// refused.
	Dearest bool
}

func (w *Weights) String() string {
	if w.By != "" {
		list := make([]string, 0, len(w.Models))
		for _, name := range slices.Sorted(maps.Keys(w.Models)) {
			of := w.Models[name]
			list = append(list, fmt.Sprintf("%s: %v", name, of.String()))
		}
		return fmt.Sprintf("{by: %s, models: {%s}, unknown: %s}", w.By, strings.Join(list, ", "), map[bool]string{true: "dearest", false: "refuse"}[w.Dearest])
	}
	text := fmt.Sprintf("{input: %v, output: %v, cached: %v", w.Input, w.Output, w.Cached)
	for _, more := range []struct {
		key string
		w   float64
	}{{"cache_write", w.CacheWrite}, {"cache_write_1h", w.CacheWrite1h}, {"request", w.Request}} {
		if more.w != 0 {
			text += fmt.Sprintf(", %s: %v", more.key, more.w)
		}
	}
	for i := range w.Above {
		if i == 0 {
			text += ", above:"
		}
		text += fmt.Sprintf(" %d: %v", w.Above[i].Tokens, w.Above[i].String())
	}
	return text + "}"
}

func (r *Reservation) String() string {
	output := "auto"
	if !r.Auto {
		output = "[" + strings.Join(r.Output, ", ") + "]"
	}
	text := fmt.Sprintf("{output: %s, or: %d", output, max(r.Or, 1))
	if r.Set {
		text += fmt.Sprintf(", most: %d, set: true", max(r.Most, r.Or, 1))
	}
	text += fmt.Sprintf(", input: %s", cmp.Or(r.Input, "none"))
	if r.Input == "bytes" {
		text += fmt.Sprintf(", expand: %d, add: %d", max(r.Expand, 1), r.Add)
	}
	text += fmt.Sprintf(", min: %d", r.Min)
	if r.Strict {
		text += ", bound: strict"
	}
	return text + "}"
}
