// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
)

// keywordTypes are the keywords of the schema, with the type of the values that each is for. An empty type is any.
var keywordTypes = map[string]string{
	"$schema": "", "$defs": "", "$ref": "", "title": "", "description": "", "default": "", "type": "", "enum": "", "const": "",
	"anyOf": "", "oneOf": "", "allOf": "", "not": "", "if": "", "then": "",
	"properties": "object", "additionalProperties": "object", "propertyNames": "object", "required": "object",
	"dependentRequired": "object", "minProperties": "object",
	"items": "array", "minItems": "array", "maxItems": "array", "uniqueItems": "array",
	"minLength": "string", "maxLength": "string", "pattern": "string",
	"minimum": "number", "maximum": "number",
}

// TestSchemaIsStrict has the rules of ajv's strict mode, which rejects a schema that breaks one. A keyword is known.
// The schema of a keyword, or one around it, says the type. A type is one word. A required key is among the properties.
func TestSchemaIsStrict(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]config.Vocabulary{"of the program": command.Vocabulary(), "of the library": config.DefaultVocabulary(), "empty": {}} {
		var schema map[string]any
		if err := json.Unmarshal(v.Schema(), &schema); err != nil {
			t.Fatal(err)
		}
		if breaches := strictly(schema, "#", ""); len(breaches) > 0 {
			t.Errorf("the schema %s: %d breaches: %q", name, len(breaches), breaches)
		}
	}
	for text, breaches := range map[string]int{
		`{"type": "object", "properties": {"a": true}, "required": ["a"]}`:              0,
		`{"type": "object", "properties": {"a": true}, "anyOf": [{"required": ["a"]}]}`: 1,
		`{"type": "object", "properties": {"a": {"maximum": 5}}}`:                       1,
		`{"maximum": 5}`: 1,
		`{"type": "integer", "anyOf": [{"maximum": 5}]}`:          0,
		`{"type": ["integer", "string"]}`:                         1,
		`{"type": "integer", "anyOf": [{"type": "string"}]}`:      1,
		`{"typ": "integer"}`:                                      1,
		`{"then": true}`:                                          1,
		`{"$defs": {"a": {"pattern": "x"}}, "$ref": "#/$defs/a"}`: 1,
	} {
		var schema map[string]any
		if err := json.Unmarshal([]byte(text), &schema); err != nil {
			t.Fatal(err)
		}
		if got := strictly(schema, "#", ""); len(got) != breaches {
			t.Errorf("%s: %q, want %d", text, got, breaches)
		}
	}
}

// strictly returns where a schema breaks a rule. kind is the type of the value that schemas around it say.
func strictly(schema any, at, kind string) (breaches []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil // true or false
	}
	breach := func(what string) { breaches = append(breaches, at+" "+what) }
	if own, given := s["type"]; given {
		word, one := own.(string)
		if word == "integer" {
			word = "number"
		}
		if !one || kind != "" && word != kind {
			breach("type")
		}
		kind = word
	}
	properties, _ := s["properties"].(map[string]any)
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		value, below := s[keyword], at+"/"+keyword
		of, known := keywordTypes[keyword]
		_, conditional := s["if"]
		if !known || of != "" && of != kind || keyword == "then" && !conditional {
			breach(keyword)
		}
		switch keyword {
		case "required":
			for _, key := range value.([]any) {
				if properties[key.(string)] == nil {
					breach("required " + key.(string))
				}
			}
		case "properties", "$defs":
			for key, part := range value.(map[string]any) {
				breaches = append(breaches, strictly(part, below+"/"+key, "")...)
			}
		case "anyOf", "oneOf", "allOf":
			for _, part := range value.([]any) {
				breaches = append(breaches, strictly(part, below, kind)...)
			}
		case "not", "if", "then":
			breaches = append(breaches, strictly(value, below, kind)...)
		case "items", "additionalProperties":
			breaches = append(breaches, strictly(value, below, "")...)
		case "propertyNames":
			breaches = append(breaches, strictly(value, below, "string")...)
		}
	}
	return breaches
}
