// SPDX-License-Identifier: MIT

package requestbody

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// readAt returns the values of a body at JSON pointers, without how they are written.
func readAt(body []byte, pointers []string) ([]Value, error) {
	read, err := Read(body, &Query{Pointers: pointers})
	for i := range read.Values {
		read.Values[i].Given, read.Values[i].Folded = false, false
	}
	if len(body) == 0 {
		return values(body, pointers)
	}
	return read.Values, err
}

// TestRead reads a value at a pointer.
func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", actors.MostValue)
	for _, tc := range []struct {
		body, pointer string
		want          Value
	}{
		{`{"model":"gpt"}`, "/model", Value{Actor: "gpt"}},
		{` {"a":{"b":[1,"x"]}} `, "/a/b/1", Value{Actor: "x"}},
		{`{"a/b":{"~":true}}`, "/a~1b/~0", Value{Actor: "true"}},
		{`{"m":false}`, "/m", Value{Actor: "false"}},
		{`{"m":null}`, "/m", Value{}},
		{`{"m":""}`, "/m", Value{}},
		{`{"n":1}`, "/m", Value{}},
		{`[]`, "/m", Value{}},
		{`"text"`, "/m", Value{}},
		{`{"m":[1]}`, "/m", Value{Actor: rule.Unclear}},
		{`{"m":{}}`, "/m", Value{Actor: rule.Unclear}},
		{`{"m":"` + long + `"}`, "/m", Value{Actor: long}},
		{`{"m":"` + long + `x"}`, "/m", Value{Actor: rule.Unclear}},
		{`{"MODEL":"gpt"}`, "/model", Value{Actor: "gpt"}},
		{`{"model":"gpt"}`, "/Model", Value{Actor: "gpt"}},
		{"{\"\u212Aey\":\"k\"}", "/key", Value{Actor: "k"}}, // the Kelvin sign, which encoding/json folds
		{`{"\u006dodel":"g\u0070t"}`, "/model", Value{Actor: "gpt"}},
		{`{"m":7}`, "/m", Value{Actor: "7", Count: 7}},
		{`{"m":7.0}`, "/m", Value{Actor: "7", Count: 7}},
		{`{"m":70e-1}`, "/m", Value{Actor: "7", Count: 7}},
		{`{"m":1E3}`, "/m", Value{Actor: "1000", Count: 1000}},
		{`{"m":"7"}`, "/m", Value{Actor: "7"}},
		{`{"m":-7}`, "/m", Value{Actor: "-7"}},
		{`{"m":-0.0}`, "/m", Value{Actor: "0"}},
		{`{"m":0e999999999999}`, "/m", Value{Actor: "0"}},
		{`{"m":1.5}`, "/m", Value{Actor: rule.Unclear}},
		{`{"m":1e-999999999999}`, "/m", Value{Actor: rule.Unclear}},
		{`{"m":1e30}`, "/m", Value{Actor: rule.Unclear, Count: bounds.MaxN}},
		{`{"m":1e999999999999}`, "/m", Value{Actor: rule.Unclear, Count: bounds.MaxN}},
		{`{"m":-1e30}`, "/m", Value{Actor: rule.Unclear}},
		{`{"m":1000000001}`, "/m", Value{Actor: "1000000001", Count: bounds.MaxN}},
		{`{"m":18446744073709551615}`, "/m", Value{Actor: "18446744073709551615", Count: bounds.MaxN}},
		{`{"other":1,"other":2,"m":1}`, "/m", Value{Actor: "1", Count: 1}},
	} {
		got, err := readAt([]byte(tc.body), []string{tc.pointer})
		if err != nil || got[0] != tc.want {
			t.Errorf("%.60s at %s: %+.40v, %v, want %+.40v", tc.body, tc.pointer, got, err, tc.want)
		}
	}
	for body, want := range map[string]error{
		``: NotJSON, `{`: NotJSON, `{"m":1}x`: NotJSON, `{"m":01}`: NotJSON, "\xef\xbb\xbf{}": NotJSON, "\x1f\x8b\x08\x00": NotJSON, "m=1": NotJSON,
		strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001): NotJSON,
		`{"m":1,"m":1}`: Twice, `{"m":1,"M":2}`: Twice, `{"m":1,"\u006d":2}`: Twice, `{"m":null,"m":1}`: Twice,
	} {
		if _, err := readAt([]byte(body), []string{"/m"}); !errors.Is(err, want) {
			t.Errorf("%.60s: %v, want %v", body, err, want)
		}
	}
}

// FuzzRead compares values with those that encoding/json decodes.
func FuzzRead(f *testing.F) {
	for _, s := range []string{`{"m":1}`, `{"m":"x"}`, `{"m":1e2}`, `{"m":-0.00}`, `{"m":120e-1}`, `{"m":true,"M":1}`, `{"m":[{}]}`, `{"m":"\ud800"}`, `[1]`, `{"a":{"m":1},"m":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		values, err := readAt([]byte(body), []string{"/m"})
		var all any
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.UseNumber()
		if valid := json.Valid([]byte(body)); valid != !errors.Is(err, NotJSON) {
			t.Fatalf("%q: %v, but valid is %v", body, err, valid)
		}
		if err != nil || decoder.Decode(&all) != nil {
			return
		}
		object, _ := all.(map[string]any)
		want, found := any(nil), false
		for key, value := range object {
			if strings.EqualFold(key, "m") {
				want, found = value, true
			}
		}
		checkValue(t, body, values[0], want, found)
	})
}

// checkValue compares a value with what encoding/json has decoded.
func checkValue(t *testing.T, body string, got Value, want any, found bool) {
	t.Helper()
	expect := Value{Actor: rule.Unclear}
	switch v := want.(type) {
	case nil:
		expect = Value{}
	case string:
		if expect.Actor = v; len(v) > actors.MostValue {
			expect.Actor = rule.Unclear
		}
	case bool:
		expect.Actor = map[bool]string{true: "true", false: "false"}[v]
	case json.Number:
		if exponent := strings.IndexAny(v.String(), "eE"); exponent >= 0 && len(v)-exponent > 5 {
			return // too large for the model
		}
		n, ok := new(big.Rat).SetString(v.String())
		if !ok {
			t.Fatalf("%q: %s", body, v)
		}
		if n.IsInt() {
			if digits := n.Num().String(); len(strings.TrimPrefix(digits, "-")) <= maxDigits {
				expect.Actor = digits
			}
			if n.Sign() > 0 {
				expect.Count = bounds.MaxN
				if n.Num().IsInt64() {
					expect.Count = min(n.Num().Int64(), bounds.MaxN)
				}
			}
		}
		if len(v) > actors.MostValue {
			expect = Value{Actor: rule.Unclear}
		}
	}
	if got != expect {
		t.Errorf("%q: %+v, want %+v (found %v)", body, got, expect, found)
	}
}
