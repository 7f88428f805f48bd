// SPDX-License-Identifier: MIT

package answer

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/jsonscan"
)

// MaxCount is the largest count. Larger ones count as it.
const MaxCount = bounds.MaxSettled

// maxFields is the largest number of counts that a format has.
const maxFields = 6

// format describes where the documents of a response have counts, and what they mean.
type format struct {
	// fields has the JSON pointers of each count. If a document has several of them, the largest counts.
	fields [][]string

	// replaces says that a document with a usage replaces the counts of earlier ones, also those that it
	// does not have. Otherwise each count stays until a later one.
	replaces bool

	// spare is the index of a count that repeats others. It is ignored if it is unreadable. 0 means none.
	spare int

	usage func(n [maxFields]int64) Usage

	// ends has the types of events that end a stream. All of their counts are in them or earlier.
	ends []string
}

// openAIFormat reads chat completions, completions, embeddings, images and Responses. Their input
// includes the cached part, and what OpenRouter writes to a cache. The events of Responses contain the whole response. Some compatible servers count
// more in the total than in its parts, such as thoughts, or have the total alone. The rest is then output, or
// input if there is no input.
var openAIFormat = &format{
	fields: [][]string{
		{"/usage/prompt_tokens", "/usage/input_tokens", "/response/usage/input_tokens"},
		{"/usage/completion_tokens", "/usage/output_tokens", "/response/usage/output_tokens"},
		{"/usage/prompt_tokens_details/cached_tokens", "/usage/input_tokens_details/cached_tokens", "/response/usage/input_tokens_details/cached_tokens"},
		{"/usage/total_tokens", "/response/usage/total_tokens"},
		{"/usage/prompt_tokens_details/cache_write_tokens", "/response/usage/input_tokens_details/cache_write_tokens"},
	},
	replaces: true,
	spare:    3,
	usage: func(n [maxFields]int64) Usage {
		cached := min(n[2], n[0])
		written := min(n[4], n[0]-cached)
		u := Usage{Input: n[0] - cached - written, Output: n[1], Cached: cached, CacheWrite: written}
		rest := max(n[3]-min(n[0]+n[1], MaxCount), 0)
		if n[0] > 0 {
			u.Output += rest
		} else {
			u.Input = rest
		}
		return u
	},
	ends: []string{"response.completed", "response.incomplete", "response.failed", "error"},
}

// anthropicFormat reads messages. Their input excludes what is written to the cache or read from it.
// In a stream, message_start has all counts of the input, and message_delta the final ones.
var anthropicFormat = &format{
	fields: [][]string{
		{"/usage/input_tokens", "/message/usage/input_tokens"},
		{"/usage/cache_creation_input_tokens", "/message/usage/cache_creation_input_tokens"},
		{"/usage/output_tokens", "/message/usage/output_tokens"},
		{"/usage/cache_read_input_tokens", "/message/usage/cache_read_input_tokens"},
		{"/usage/cache_creation/ephemeral_1h_input_tokens", "/message/usage/cache_creation/ephemeral_1h_input_tokens"},
	},
	usage: func(n [maxFields]int64) Usage {
		hour := min(n[4], n[1])
		return Usage{Input: n[0], Output: n[2], Cached: n[3], CacheWrite: n[1] - hour, CacheWrite1h: hour}
	},
	ends: []string{"message_stop", "error"},
}

// geminiFormat reads generated content. Its prompt includes the cached part, but not the results of
// tools. The candidates exclude the thoughts. Each document of a stream has the counts so far.
var geminiFormat = &format{
	fields: [][]string{
		{"/usageMetadata/promptTokenCount"},
		{"/usageMetadata/toolUsePromptTokenCount"},
		{"/usageMetadata/candidatesTokenCount"},
		{"/usageMetadata/thoughtsTokenCount"},
		{"/usageMetadata/cachedContentTokenCount"},
	},
	replaces: true,
	usage: func(n [maxFields]int64) Usage {
		cached := min(n[4], n[0])
		return Usage{Input: min(n[0]-cached+n[1], MaxCount), Output: min(n[2]+n[3], MaxCount), Cached: cached}
	},
}

// single returns the format of a number at some JSON pointers.
func single(pointers ...string) *format {
	return &format{
		fields: [][]string{pointers},
		usage:  func(n [maxFields]int64) Usage { return Usage{Output: n[0]} },
	}
}

// Formats are the names of the formats whose usage has parts. Each has an entry in formats.
var Formats = []string{string(openAI), string(anthropic), string(gemini)}

var formats = map[kind]*format{openAI: openAIFormat, anthropic: anthropicFormat, gemini: geminiFormat}

// formatOf returns the format of a source.
func formatOf(s Source) *format {
	if f := formats[s.kind]; f != nil {
		return f
	}
	if s.kind == pointer && s.name != "" {
		return single(s.name)
	}
	return single()
}

// count is a number that a response says, or not.
type count struct {
	n     int64
	state countState
}

type countState uint8

const (
	absent countState = iota
	known
	unreadable // it is there, but it is not a count
)

// or returns the larger of two counts. It is unreadable if one of them is.
func (c count) or(d count) count { return count{max(c.n, d.n), max(c.state, d.state)} }

// parseCount returns the count that a text says, times scale. Whole numbers may be written like 1.0 and 1e3. A
// fraction is rounded up, because a rule must not charge less than what was used. All digits count.
func parseCount(text string, scale int64) count {
	if strings.Trim(text, "0123456789+-.eE") != "" {
		return count{state: unreadable} // ParseFloat accepts more, such as Inf and 0x1p4
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 && n <= MaxCount && scale == 1 && text[0] != '-' && text[0] != '+' {
		return count{n, known} // without memory
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || f < 0 || f == 0 && text[0] == '-' && !isZero(text) {
		return count{state: unreadable}
	}
	switch {
	case isZero(text):
		return count{0, known}
	case f*float64(scale) > 2*float64(MaxCount):
		return count{MaxCount, known}
	case f*float64(scale) < 1e-9: // its digits can be far behind the point
		return count{1, known}
	}
	return multiply(strings.Clone(text), scale) // so that the text itself needs no memory
}

// multiply returns the product of a number that is at most 2 * MaxCount with scale, and scale.
func multiply(text string, scale int64) count {
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return count{state: unreadable}
	}
	exact.Mul(exact, big.NewRat(scale, 1))
	whole, rest := new(big.Int).QuoRem(exact.Num(), exact.Denom(), new(big.Int))
	n := whole.Int64() // at most 2 * MaxCount
	if rest.Sign() > 0 {
		n++
	}
	return count{min(n, MaxCount), known}
}

// isZero reports whether a number is 0. A tiny one such as 1e-999 is not, although ParseFloat rounds it to 0.
func isZero(number string) bool {
	for i := range len(number) {
		switch c := number[i]; {
		case c == 'e', c == 'E':
			return true
		case '1' <= c && c <= '9':
			return false
		}
	}
	return true
}

// countOf returns the count that a JSON value says, times scale. A string may contain a number, because Google's
// APIs write 64-bit integers like this.
func countOf(v jsonscan.Value, scale int64) count {
	switch {
	case v.Kind == jsonscan.None || v.Kind == jsonscan.Null:
		return count{}
	case v.Cut || v.Kind != jsonscan.Number && v.Kind != jsonscan.String:
		return count{state: unreadable}
	}
	return parseCount(string(v.Text), scale)
}
