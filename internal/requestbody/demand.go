// SPDX-License-Identifier: MIT

package requestbody

import (
	"fmt"
	"slices"
	"strings"
)

// Demand is what a rule demands of a body, so that the request cannot cost more than the rule reserves.
type Demand struct {
	Format string   // of Cost.Answer
	Names  []string // JSON pointers of the most tokens of output; the first is written unless Auto is set
	Auto   bool     // the format knows which name is written
	Or     int64    // what is written if the body has none of the Names
	Most   int64    // the largest number under each of the Names
	Set    bool     // the Names are checked and written
	Strict bool     // only what the format of requests knows is accepted

	// Model is the JSON pointer of the model's name, and Priced reports whether a model has a price. Empty means
	// that all have.
	Model  string
	Priced func(model string) bool
}

// check returns a Mistake unless the body meets the demand.
func (d *Demand) check(body []byte, pointers []string, values []Value) error {
	at := func(pointer string) (v Value) {
		if i := slices.Index(pointers, pointer); i >= 0 && values != nil {
			v = values[i]
		}
		return v
	}
	if d.Model != "" {
		switch model := at(d.Model); {
		case model.Folded:
			return Mistake("spells " + d.Model + " in other letters")
		case !d.Priced(model.Actor):
			return Mistake(fmt.Sprintf("names the model %.100q, which has no price", model.Actor))
		}
	}
	if d.Set && len(body) > 0 && members(body, 0) == nil {
		return Mistake("is no JSON object")
	}
	for _, name := range d.Names {
		switch v := at(name); {
		case !d.Set:
		case folded(body, split(name)):
			return Mistake("spells " + name + " in other letters")
		case !v.Given:
		case v.Count < 1 || v.Count > d.Most:
			return Mistake(fmt.Sprintf("has something else than a whole number of 1 to %d at %s", d.Most, name))
		}
	}
	if d.Set && d.Format == "gemini" && folded(body, split(candidatesPointer)) {
		return Mistake("spells " + candidatesPointer + " in other letters")
	}
	if !d.Strict {
		return nil
	}
	return d.closed(body)
}

// folded reports whether a body has one of some keys in other letters, even if it has nothing at the last. Underscores do
// not count, because Google's servers read max_output_tokens as maxOutputTokens.
func folded(body []byte, keys []string) bool {
	for i := range keys {
		parent, _ := find(body, keys[:i])
		for key := range members(body[parent.from:parent.to], parent.from) {
			if key != keys[i] && strings.EqualFold(joined(key), joined(keys[i])) {
				return true
			}
		}
		if _, ok := find(body, keys[:i+1]); !ok {
			return false
		}
	}
	return false
}

func joined(key string) string { return strings.ReplaceAll(key, "_", "") }

// prompts returns the number of texts in the "prompt" of a completion. A list of numbers is one text, because it has
// tokens.
func prompts(body []byte, q *Query) int64 {
	if !slices.Contains(q.Pointers, promptPointer) {
		return 1
	}
	prompt, ok := members(body, 0)["prompt"]
	if !ok {
		return 1
	}
	x := lexer{text: prompt.in(body)}
	if x.peek() != '[' {
		return 1
	}
	x.at++
	n, tokens := int64(0), true
	for ; x.more(); x.value() {
		n++
		tokens = tokens && x.peek() != '"' && x.peek() != '['
	}
	if tokens {
		return 1
	}
	return n
}
