// SPDX-License-Identifier: MIT

package requestbody

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// format is what the requests to an API look like.
type format struct {
	names []string // JSON pointers of the most tokens of output
	times []string // JSON pointers of numbers that multiply the output
	apis  []api
}

// api is one kind of request. Its shape has all members that cannot make a request cost more than its text and its most
// tokens of output. Members that are not in there are refused by a strict rule, because nobody knows what they cost.
type api struct {
	has   string // the member that only requests of this kind have
	most  string // the name under which the most tokens of output are written
	names []string
	shape shape
}

const (
	promptPointer     = "/prompt"
	candidatesPointer = "/generationConfig/candidateCount"
)

// formats are the formats of requests by the answer of a cost. Other answers have the first.
var formats = map[string]*format{"openai": openAI, "anthropic": anthropic, "gemini": gemini}

var openAI = &format{
	names: []string{"/max_tokens", "/max_completion_tokens", "/max_output_tokens"},
	times: []string{"/n", "/best_of", promptPointer},
	apis: []api{
		{"messages", "/max_tokens", []string{"/max_tokens", "/max_completion_tokens"}, openAIChat},
		{"prompt", "/max_tokens", []string{"/max_tokens"}, openAICompletion},
		{"input", "/max_output_tokens", []string{"/max_output_tokens"}, openAIResponse},
	},
}

var anthropic = &format{
	names: []string{"/max_tokens"},
	apis:  []api{{"messages", "/max_tokens", []string{"/max_tokens"}, anthropicMessages}},
}

var gemini = &format{
	names: []string{"/generationConfig/maxOutputTokens"},
	times: []string{candidatesPointer},
	apis:  []api{{"contents", "/generationConfig/maxOutputTokens", []string{"/generationConfig/maxOutputTokens"}, geminiContents}},
}

func formatOf(name string) *format {
	if f := formats[name]; f != nil {
		return f
	}
	return openAI
}

// Names returns the JSON pointers of the most tokens of output in requests of a format, and those of numbers that
// multiply the output.
func Names(name string) (most, times []string) {
	f := formatOf(name)
	return f.names, f.times
}

// first returns the name under which a request gets its most tokens of output.
func (f *format) first(body []byte) string {
	if root := members(body, 0); f == openAI && forResponses(root, body) {
		return "/max_output_tokens"
	}
	return f.apis[0].most
}

// closed returns a Mistake if the request can cost more than its text and its most tokens of output.
func (d *Demand) closed(body []byte) error {
	root := members(body, 0)
	if !utf8.Valid(body) { // a byte could become three
		return Mistake("is not UTF-8")
	}
	for _, a := range formatOf(d.Format).apis {
		if _, ok := root[a.has]; !ok {
			continue
		}
		known := copied(a.shape)
		for _, name := range a.names {
			if slices.Contains(d.Names, name) {
				known.add(split(name), count)
			}
		}
		w := walker{lexer: lexer{text: body}}
		if w.walk(known, "") {
			return nil
		}
		return Mistake(fmt.Sprintf("has %s, whose cost nobody knows before", w.found))
	}
	return Mistake("is of no kind whose cost is known before")
}

// shape is what a value may be. Everything may be null, which means that it is not there.
type shape any

type (
	object  map[string]shape // by its members
	list    struct{ of shape }
	either  []shape           // by what it begins with
	kinds   map[string]object // an object by its "type"
	words   []string          // one of these texts
	scalar  string            // "string", "number" or "bool"
	anyText struct{}          // everything: the provider sees nothing but its text
)

const (
	text   = scalar("string")
	number = scalar("number")
	truth  = scalar("bool")
	count  = scalar("count") // a whole number from 1
)

var any_ = anyText{}

// copied returns a copy of the outer two levels of an object.
func copied(of shape) object {
	from, _ := of.(object)
	into := object{}
	for key, s := range from {
		if inner, ok := s.(object); ok {
			s = copied(inner)
		}
		into[key] = s
	}
	return into
}

func (o object) add(keys []string, s shape) {
	if len(keys) == 1 {
		o[keys[0]] = s
		return
	}
	inner, _ := o[keys[0]].(object)
	if inner == nil {
		inner = object{}
		o[keys[0]] = inner
	}
	inner.add(keys[1:], s)
}

// walker compares a text with a shape.
type walker struct {
	lexer
	found string // the JSON pointer of what has another shape
}

// walk reads the next value, and reports whether it has a shape. null has each.
func (w *walker) walk(s shape, at string) bool {
	if s == any_ || w.peek() == 'n' {
		w.value()
		return true
	}
	if all, ok := s.(either); ok {
		s = nil
		for _, one := range all {
			if w.begins(one) {
				s = one
			}
		}
	}
	ok := false
	switch s := s.(type) {
	case object:
		if ok = w.begins(s); ok {
			return w.object(s, at)
		}
	case kinds:
		if ok = w.begins(s); ok {
			return w.typed(s, at)
		}
	case list:
		if ok = w.begins(s); ok {
			w.at++
			for i := 0; w.more(); i++ {
				if !w.walk(s.of, fmt.Sprintf("%s/%d", at, i)) {
					return false
				}
			}
		}
	case words:
		ok = w.peek() == '"' && slices.Contains(s, w.string())
	case scalar:
		ok = w.begins(s)
		w.value()
	}
	if !ok {
		w.found = at
	}
	return ok
}

// object compares an object.
func (w *walker) object(s object, at string) bool {
	w.at++
	seen := map[string]bool{}
	for w.more() {
		key := w.key()
		place := at + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		member, known := s[key]
		if seen[key] {
			w.found = place + " twice"
			return false
		}
		seen[key] = true
		switch {
		case known:
			if !w.walk(member, place) {
				return false
			}
		case w.peek() == 'n': // null: it is not there
			w.value()
		default:
			w.found = place
			return false
		}
	}
	return true
}

// typed compares an object whose shape its "type" says, which can be the last member.
func (w *walker) typed(of kinds, at string) bool {
	all := w.lexer
	object := all.value().in(w.text)
	kind := ""
	if said, ok := members(object, 0)["type"]; ok {
		_ = json.Unmarshal(said.in(object), &kind) // no text is no kind
	}
	s, known := of[kind]
	if !known {
		if w.found = at; kind != "" {
			w.found = fmt.Sprintf("%s of the type %.40q", at, kind)
		}
		return false
	}
	return w.object(s, at)
}
