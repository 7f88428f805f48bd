// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
)

// FuzzMembers compares the places of values with those that encoding/json finds.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		``, `{`, `{"a"`, `{"stream":true`, `{"stream":true}x`, `1`, `"a"`, `[{}]`, `{}`, ` { } `, `{"a":1}`, "\t{\"a\" :\r\n\"b\" , \"c\":[ 1,{\"d\":\"]}\"} ] }", `{"a\"\\":"\\","\u0062":"\"","c":{"\\\"":"\\\\\""}}`,
		`{"a":1,"a":-1.5e+7,"b":true,"c":null}`, `{"":{}}`, "{\"\xff\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":[[],[[{}]]],"b":""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			if changed := IncludeUsage(text); !bytes.Equal(changed, text) {
				t.Errorf("%q is no JSON, and was changed to %q", text, changed)
			}
			return
		}
		var want map[string]span
		d := json.NewDecoder(bytes.NewReader(text))
		if first, _ := d.Token(); first == json.Delim('{') {
			want = map[string]span{}
			for d.More() {
				key, _ := d.Token()
				var value json.RawMessage
				if err := d.Decode(&value); err != nil {
					t.Fatal(err)
				}
				end := 7 + int(d.InputOffset())
				want[key.(string)] = span{end - len(value), end}
			}
		}
		if got := members(text, 7); !maps.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	})
}
