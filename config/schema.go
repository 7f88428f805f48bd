// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"encoding/json"
)

// Schema returns a JSON Schema (draft 2020-12) for one document of a configuration in the words
// of v. Editors use it. A configuration that Parse accepts fits the schema, except for oddities
// such as a colon without a space after it. A schema cannot express everything that Parse checks,
// such as that no two entries have the same url.
func (v Vocabulary) Schema() []byte {
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
