// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"encoding/json"

	"github.com/diana-limiter/diana/rule"
)

// Schema returns a JSON Schema (draft 2020-12) of one document of a configuration in the
// words of v, for editors. What Parse accepts fits it, but for oddities such as a colon
// without the space behind it. It cannot say all that Parse does: that no two entries have
// the same url, for one.
func Schema(v rule.Vocabulary) []byte {
	d := &drawing{words: v, defs: object{}}
	schema := object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "Configuration of Diana",
		"description": "Settings and limits; or an entry, or a list of entries.",
		"anyOf":       []object{fullKeys.draw(d), entryKeys.draw(d), entriesForm.draw(d)},
		"$defs":       d.defs,
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil { // the tables are wrong
		panic(err)
	}
	return b.Bytes()
}
