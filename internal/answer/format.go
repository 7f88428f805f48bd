// SPDX-License-Identifier: MIT

package answer

import (
	"math"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/jsonscan"
)

// MaxCount is the largest count. Larger ones count as it.
const MaxCount = bounds.MaxSettled

// maxFields is the largest number of counts that a format has.
const maxFields = 5

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
// includes the cached part. The events of Responses contain the whole response. Some compatible servers count
// more in the total than in its parts, such as thoughts, or have the total alone. The rest is then output, or
// input if there is no input.
var openAIFormat = &format{
	fields: [][]string{
		{"/usage/prompt_tokens", "/usage/input_tokens", "/response/usage/input_tokens"},
		{"/usage/completion_tokens", "/usage/output_tokens", "/response/usage/output_tokens"},
		{"/usage/prompt_tokens_details/cached_tokens", "/usage/input_tokens_details/cached_tokens", "/response/usage/input_tokens_details/cached_tokens"},
		{"/usage/total_tokens", "/response/usage/total_tokens"},
	},
	replaces: true,
	spare:    3,
	usage: func(n [maxFields]int64) Usage {
		cached := min(n[2], n[0])
		u := Usage{Input: n[0] - cached, Output: n[1], Cached: cached}
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
	},
	usage: func(n [maxFields]int64) Usage {
		return Usage{Input: min(n[0]+n[1], MaxCount), Output: n[2], Cached: n[3]}
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

// formatOf returns the format of a source.
func formatOf(s Source) *format {
	switch s.kind {
	case openAI:
		return openAIFormat
	case anthropic:
		return anthropicFormat
	case gemini:
		return geminiFormat
	case pointer:
		if s.name != "" {
			return single(s.name)
		}
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

// parseCount returns the count that a text says. Whole numbers may be written like 1.0 and 1e3. A fraction is
// rounded up, because a rule must not charge less than what was used.
func parseCount(text string) count {
	if strings.Trim(text, "0123456789+-.eE") != "" {
		return count{state: unreadable} // ParseFloat accepts more, such as Inf and 0x1p4
	}
	f, err := strconv.ParseFloat(text, 64) // exact for all whole numbers up to MaxCount
	if err != nil && !math.IsInf(f, 0) || f < 0 || f == 0 && text[0] == '-' && !isZero(text) {
		return count{state: unreadable}
	}
	if f == 0 && !isZero(text) { // such as 1e-999
		f = 1
	}
	return count{int64(min(math.Ceil(f), MaxCount)), known}
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

// countOf returns the count that a JSON value says. A string may contain a number, because Google's
// APIs write 64-bit integers like this.
func countOf(v jsonscan.Value) count {
	switch {
	case v.Kind == jsonscan.None || v.Kind == jsonscan.Null:
		return count{}
	case v.Cut || v.Kind != jsonscan.Number && v.Kind != jsonscan.String:
		return count{state: unreadable}
	}
	return parseCount(string(v.Text))
}
