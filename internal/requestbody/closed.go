// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
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

const promptPointer = "/prompt"

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
	times: []string{"/generationConfig/candidateCount"},
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
		known := maps(a.shape)
		for _, name := range a.names {
			if slices.Contains(d.Names, name) {
				known.add(split(name), count)
			}
		}
		w := walker{d: json.NewDecoder(bytes.NewReader(body))}
		w.d.UseNumber()
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

// maps returns a copy of the outer two levels of an object.
func maps(of shape) object {
	from, _ := of.(object)
	into := object{}
	for key, s := range from {
		if inner, ok := s.(object); ok {
			s = maps(inner)
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
	d     *json.Decoder
	found string // the JSON pointer of what has another shape
}

// walk reads the next value, and reports whether it has a shape. The text is JSON.
func (w *walker) walk(s shape, at string) bool {
	if _, ok := s.(anyText); ok {
		var all json.RawMessage
		return w.d.Decode(&all) == nil
	}
	first, err := w.d.Token()
	if err != nil {
		w.found = at
		return false
	}
	return w.value(s, at, first)
}

// value compares the value that begins with first.
func (w *walker) value(s shape, at string, first json.Token) bool {
	if first == nil {
		return true
	}
	if all, ok := s.(either); ok {
		s = nil
		for _, one := range all {
			if begins(one, first) {
				s = one
			}
		}
	}
	ok := false
	switch s := s.(type) {
	case object:
		return w.object(s, nil, at, first)
	case kinds:
		return w.object(nil, s, at, first)
	case list:
		if ok = first == json.Delim('['); ok {
			for i := 0; w.d.More(); i++ {
				if !w.walk(s.of, fmt.Sprintf("%s/%d", at, i)) {
					return false
				}
			}
			_, _ = w.d.Token()
		}
	case words:
		said, isText := first.(string)
		ok = isText && slices.Contains(s, said)
	case scalar:
		ok = begins(s, first)
	}
	if !ok {
		w.found = at
	}
	return ok
}

// begins reports whether a value of a shape can begin with a token.
func begins(s shape, first json.Token) bool {
	switch s := s.(type) {
	case object, kinds:
		return first == json.Delim('{')
	case list:
		return first == json.Delim('[')
	case scalar:
		switch said := first.(type) {
		case string:
			return s == text
		case bool:
			return s == truth
		case json.Number:
			digits, negative, size := whole(string(said))
			return s == number || s == count && !negative && size == ordinary && digits != "0"
		}
	}
	return false
}

// object compares an object. With of, its "type" says which shape it has, and must come before all that is not in
// each of them.
func (w *walker) object(s object, of kinds, at string, first json.Token) bool {
	if w.found = at; first != json.Delim('{') {
		return false
	}
	if of != nil {
		return w.typed(of, at)
	}
	seen := map[string]bool{}
	for w.d.More() {
		token, err := w.d.Token()
		key, _ := token.(string)
		if err != nil {
			return false
		}
		place := at + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		member, known := s[key]
		if seen[key] {
			w.found = place + " twice"
			return false
		}
		if seen[key] = true; !known {
			if value, err := w.d.Token(); err == nil && value == nil { // null: it is not there
				continue
			}
			w.found = place
			return false
		}
		if !w.walk(member, place) {
			return false
		}
	}
	_, _ = w.d.Token()
	return true
}

// typed compares the rest of an object whose shape its "type" says.
func (w *walker) typed(of kinds, at string) bool {
	text := []byte("{")
	kind := ""
	for w.d.More() { // the type can be the last member, so the object is read twice
		var value json.RawMessage
		token, err := w.d.Token()
		key, _ := token.(string)
		if err != nil || w.d.Decode(&value) != nil {
			return false
		}
		if key == "type" {
			_ = json.Unmarshal(value, &kind)
		}
		name, _ := json.Marshal(key)
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(append(text, name...), ':'), value...)
	}
	_, _ = w.d.Token()
	s, known := of[kind]
	if !known {
		if w.found = at; kind != "" {
			w.found = fmt.Sprintf("%s of the type %.40q", at, kind)
		}
		return false
	}
	inner := walker{d: json.NewDecoder(bytes.NewReader(append(text, '}')))}
	inner.d.UseNumber()
	ok := inner.walk(s, at)
	w.found = inner.found
	return ok
}
