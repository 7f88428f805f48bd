// SPDX-License-Identifier: MIT

package answer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/jsonscan"
)

// Source is the place where a response says what it has cost. Sources that mean the same are equal.
// The zero value is no source: its usage is never known. Make one with ParseSource.
type Source struct {
	kind  kind
	name  string // a JSON pointer, or a header in canonical form
	scale int64  // of a JSON pointer: what its number is multiplied by; 0: 1
}

type kind string

const (
	openAI    kind = "openai"
	anthropic kind = "anthropic"
	gemini    kind = "gemini"
	inBytes   kind = "bytes"
	duration  kind = "duration"
	pointer   kind = ""
	inHeader  kind = "header:"
	inTrailer kind = "trailer:"
)

// Duration is the source of rules that charge the time of a response. A Reader does not know it.
var Duration = Source{kind: duration}

// ParseSource reads the text of a source:
//
//   - openai, anthropic or gemini: the usage in responses of these APIs, streamed or not
//   - a JSON pointer such as /usage/total_tokens: a number in a JSON response, or the last one in a
//     stream of events with JSON
//   - header:NAME or trailer:NAME: a number in a header or trailer of the response
//   - bytes: the size of the body as it is sent
//   - duration: the time of the response
//
// The error says what was expected.
func ParseSource(text string) (Source, error) {
	if of := kind(text); formats[of] != nil || of == inBytes || of == duration {
		return Source{kind: of}, nil
	}
	for _, k := range []kind{inHeader, inTrailer} {
		if name, ok := strings.CutPrefix(text, string(k)); ok {
			if !httptext.IsToken(name) {
				return Source{}, fmt.Errorf("expected the name of a header after %s", text[:len(k)])
			}
			return Source{kind: k, name: http.CanonicalHeaderKey(name)}, nil
		}
	}
	if !strings.HasPrefix(text, "/") {
		return Source{}, errors.New("expected " + strings.Join(Formats, ", ") + ", header:NAME, trailer:NAME, bytes, duration or a JSON pointer such as /usage/total_tokens")
	}
	return Source{kind: pointer, name: text}, jsonscan.CheckPointer(text)
}

// String returns a text that ParseSource reads.
func (s Source) String() string { return string(s.kind) + s.name }

// InBody reports whether the source is in the body of the response.
func (s Source) InBody() bool { return s.HasParts() || s.kind == pointer }

// IsPointer reports whether the source is a JSON pointer.
func (s Source) IsPointer() bool { return s.kind == pointer }

// Scaled returns a source that is a JSON pointer, with its number times scale. The zero value means 1.
func (s Source) Scaled(scale int64) Source {
	s.scale = scale
	return s
}

// HasParts reports whether a Usage of the source has parts for the input.
func (s Source) HasParts() bool { return formats[s.kind] != nil }
