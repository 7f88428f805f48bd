// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestIncludeUsage shows the bytes that change.
func TestIncludeUsage(t *testing.T) {
	t.Parallel()
	const want = `"stream_options":{"include_usage":true}`
	for body, changed := range map[string]string{
		`{"stream":true}`:                                            `{` + want + `,"stream":true}`,
		" {\n \"stream\" : true , \"n\": 1e0 }\n":                    " {" + want + ",\n \"stream\" : true , \"n\": 1e0 }\n",
		`{"stream_options":null,"stream":true}`:                      `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream":true,"stream_options": { } }`:                     `{"stream":true,"stream_options": {"include_usage":true } }`,
		`{"stream":true,"stream_options":{"x":[{}]}}`:                `{"stream":true,"stream_options":{"include_usage":true,"x":[{}]}}`,
		`{"stream_options":{"include_usage": false },"stream":true}`: `{"stream_options":{"include_usage": true },"stream":true}`,
		`{"stream":true,"stream_options":{"include_usage":null}}`:    `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"\u0073tream":true}`:                                       `{` + want + `,"\u0073tream":true}`,
		`{"stream":"true"}`:                                          `{` + want + `,"stream":"true"}`,
		`{"stream":1}`:                                               `{` + want + `,"stream":1}`,
		`{"stream":true,"stream_options":{"include_usage":"x"}}`:     `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"include_usage": 0}}`:      `{"stream":true,"stream_options":{"include_usage": true}}`,
		`{"stream":true,"stream_options":5}`:                         `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":[]}`:                        `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"input":"x","messages":[],"stream":true}`:                  `{` + want + `,"input":"x","messages":[],"stream":true}`,
		`{"input":"x","prompt":"y","stream":true}`:                   `{` + want + `,"input":"x","prompt":"y","stream":true}`,
		// These stay as they are.
		`{"stream":true,"stream_options":{"include_usage":true}}`: "",
		`{"stream":false}`: "", `{"stream":null}`: "",
		`{"input":"hello","stream":true}`: "", `{"stream":true,"prompt":{"id":"p"}}`: "",
		`{}`: "", `{"messages":[{"stream":true}]}`: "", `[{"stream":true}]`: "", `true`: "", `1`: "",
	} {
		if changed == "" {
			changed = body
		}
		if got := string(IncludeUsage([]byte(body))); got != changed {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, changed)
		}
	}
}

// A body whose usage a server could read in another way than Diana is a mistake.
func TestUsageInOtherLetters(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		`{"Stream":true}`: Folded,
		`{"stream":true,"Stream_Options":{"Include_Usage":false}}`: Folded,
		`{"stream":true,"Stream_Options":{}}`:                      Folded,
		`{"stream":true,"stream_options":{"Include_Usage":false}}`: Folded,
		`{"stream":true,"stream_options":{},"stream_options":{}}`:  Twice,
		`{"stream":true,"STREAM":true}`:                            Twice,
		`{"\u0073tream":true,"Model":"m"}`:                         nil,
	} {
		if _, err := readAt([]byte(body), append([]string{"/model"}, UsagePointers...)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}

// FuzzIncludeUsage compares the change with one that encoding/json makes: both mean the same. All bytes that
// are not inserted or replaced stay as they are.
func FuzzIncludeUsage(f *testing.F) {
	for _, s := range []string{
		`{"stream":true}`, `{"stream":true,"stream_options":null}`, `{"a":[1,{"b":"\u00e9"}],"stream":true,"stream_options":{"include_usage":false,"x":1.50}}`,
		"{\t\"stream\":true}", `{"stream":true,"stream_options":{ }}`, `{"stream":true,"stream_options":7}`, "{\"\xff\":1,\"stream\":true}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body := []byte(text)
		if _, err := readAt(body, UsagePointers); err != nil {
			return
		}
		before := bytes.Clone(body)
		got := IncludeUsage(body)
		if !bytes.Equal(body, before) {
			t.Fatalf("%q: the text itself has changed to %q", before, body)
		}
		if want := includeUsageSlowly(t, body); !reflect.DeepEqual(decode(t, got), want) {
			t.Fatalf("%q is %q, want %v", body, got, want)
		}
		checkBytes(t, body, got)
	})
}

// checkBytes fails if more than one part of the body has changed, or anything that the change does not say.
func checkBytes(t *testing.T, body, got []byte) {
	t.Helper()
	front, back := 0, 0
	for front < len(body) && front < len(got) && body[front] == got[front] {
		front++
	}
	for back < len(body)-front && back < len(got)-front && body[len(body)-1-back] == got[len(got)-1-back] {
		back++
	}
	removed, added := string(body[front:len(body)-back]), string(got[front:len(got)-back])
	switch removed {
	case "", "fals", "null", "ull", "nul", "n", "null}":
	default:
		if added != "" && !strings.Contains("{\"include_usage\":true}", added) {
			t.Errorf("%q is %q: %q was removed for %q", body, got, removed, added)
		}
	}
	if len(added) > len(`"stream_options":{"include_usage":true},`) {
		t.Errorf("%q is %q: %q was added", body, got, added)
	}
}

func decode(t *testing.T, body []byte) any {
	t.Helper()
	var all any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return all
}

// includeUsageSlowly returns what the changed body means.
func includeUsageSlowly(t *testing.T, body []byte) any {
	t.Helper()
	all := decode(t, body)
	object, ok := all.(map[string]any)
	if !ok || object["stream"] == nil || object["stream"] == false {
		return all
	}
	options, ok := object["stream_options"].(map[string]any)
	if !ok {
		options = map[string]any{}
		object["stream_options"] = options
	}
	options["include_usage"] = true
	return all
}

// A value of any kind replaces another, and an object gets one that it lacks. Other bytes stay as they are.
func TestReplace(t *testing.T) {
	t.Parallel()
	with := map[string]any{"/model": "a\"<b", "/o/n~1": int64(7)}
	for body, want := range map[string]string{
		` {"x":1.0, "model" : {"deep":[1]},"o":{"n/":null, "y":2}}`: ` {"x":1.0, "model" : "a\"\u003cb","o":{"n/":7, "y":2}}`,
		`{}`:      `{"o":{"n/":7},"model":"a\"\u003cb"}`,
		`{"o":1}`: "", `{"o":[]}`: "", `{"o":{"N/":1}}`: "", `{"O":{}}`: "", `{"model":1,"model":2}`: "", `[]`: "", `{"model":1`: "", ``: "",
		`{"model":"a\"\u003cb","o":{"n/":7}}`: "", // it has them
	} {
		got, ok := Replace([]byte(body), with)
		if ok != (want != "") || ok && string(got) != want || !ok && string(got) != body {
			t.Errorf("%s: %s, %v, want %s", body, got, ok, want)
		}
	}
}
