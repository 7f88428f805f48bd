// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func parseSecret(t *testing.T, text string) Secret {
	t.Helper()
	var s Secret
	if err := s.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return s
}

// Where a secret is, what it is, and what is said if it cannot be had.
func TestSecretValue(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "s3cret")
	write("line", "s3cret\n")
	write("windows", "s3cret\r\n")
	write("spaces", " s3 cret ")
	write("prefix", "env:s3cret\n")
	write("full", strings.Repeat("s", longestSecret))
	write("empty", "")
	write("blank", "\n\n")
	write("two", "s3cret\nother\n")
	write("large", strings.Repeat("s", longestSecret+1))
	t.Setenv("DIANA_TEST_SECRET", "s3cret")
	t.Setenv("DIANA_TEST_EMPTY", "")
	for _, row := range []struct{ text, want, err string }{
		{"s3cret", "s3cret", ""},
		{" s3cret", " s3cret", ""},
		{"ENV:s3cret", "ENV:s3cret", ""},
		{"env:DIANA_TEST_SECRET", "s3cret", ""},
		{"env:DIANA_TEST_EMPTY", "", "the environment variable DIANA_TEST_EMPTY is not set, or empty"},
		{"env:DIANA_TEST_ABSENT", "", "the environment variable DIANA_TEST_ABSENT is not set, or empty"},
		{"file:DIR/plain", "s3cret", ""},
		{"file:DIR/line", "s3cret", ""},
		{"file:DIR/windows", "s3cret", ""},
		{"file:DIR/spaces", " s3 cret ", ""},
		{"file:DIR/prefix", "env:s3cret", ""},
		{"file://DIR/plain", "s3cret", ""},
		{"file:DIR/full", strings.Repeat("s", longestSecret), ""},
		{"file:DIR/empty", "", "DIR/empty is empty"},
		{"file:DIR/blank", "", "DIR/blank is empty"},
		{"file:DIR/two", "", "DIR/two has more than one line"},
		{"file:DIR/large", "", "DIR/large: expected at most 65536 bytes"},
		{"file:DIR/absent", "", "open DIR/absent: no such file or directory"},
		{"file:DIR", "", "read DIR: is a directory"},
	} {
		got, err := parseSecret(t, strings.ReplaceAll(row.text, "DIR", dir)).Value()
		message := ""
		if err != nil {
			message = strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		if got != row.want || message != row.err {
			t.Errorf("%s: %q and error %q, want %q and %q", row.text, got, message, row.want, row.err)
		}
	}

	// It is read anew each time.
	variable, file := parseSecret(t, "env:DIANA_TEST_SECRET"), parseSecret(t, "file:"+dir+"/plain")
	t.Setenv("DIANA_TEST_SECRET", "another")
	write("plain", "another")
	for _, s := range []Secret{variable, file} {
		if got, err := s.Value(); got != "another" || err != nil {
			t.Errorf("%v: %q, %v after it has changed", s, got, err)
		}
	}
}

func TestSecretErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "env:", "env:1s3cret", "env:s3cret-x", "env:s3cret ", "env: s3cret", "env:s3crét", "file:", "file:s3cret\nx",
		strings.Repeat("s3cret", longestSecret),
	} {
		var s Secret
		if err := s.UnmarshalText([]byte(text)); err == nil || !s.IsZero() || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.20q: %v, %v", text, s, err)
		}
	}
}

// However a secret is printed, and whatever it is a part of, it is not shown.
func TestSecretIsHidden(t *testing.T) {
	t.Parallel()
	type deep struct{ inside *Redis }
	for text, want := range map[string]string{
		"s3cret":          "(hidden)",
		"env:PASSWORD":    "env:PASSWORD",
		"file:/run/redis": "file:/run/redis",
	} {
		s := parseSecret(t, text)
		r := Redis{Password: s, Sentinel: &Sentinel{Password: s}}
		var out bytes.Buffer
		for _, log := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(log).Info("log", "secret", s, "pointer", &s, "redis", r, "deep", deep{&r}, "map", map[string]Secret{"a": s})
		}
		for _, v := range []any{s, &s, r, &r, *r.Sentinel, []Secret{s}, struct{ own Secret }{s}, deep{&r}, Config{Redis: &r}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%t", "%p"} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
			text, err := json.Marshal(v)
			fmt.Fprintln(&out, string(text), err)
		}
		for _, part := range []string{"s3cret", "733363726574", "115 51 99 114 101 116"} { // also in numbers
			if strings.Contains(out.String(), part) {
				t.Errorf("%s is shown:\n%s", part, out.String())
			}
		}
		marshalled, err := json.Marshal(s)
		for _, got := range []string{s.String(), fmt.Sprint(s), s.LogValue().String(), strings.Trim(string(marshalled), `"`)} {
			if got != want || err != nil {
				t.Errorf("%q, want %s; %v", got, want, err)
			}
		}
	}
}

func TestSecretCompares(t *testing.T) {
	t.Parallel()
	a, b, c := parseSecret(t, "a"), parseSecret(t, "a"), parseSecret(t, "c")
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) || reflect.DeepEqual(a, Secret{}) {
		t.Error("equal are those of one text")
	}
	var none Secret
	if v, err := none.Value(); !none.IsZero() || a.IsZero() || v != "" || err != nil || none.String() != "" {
		t.Errorf("none: %q, %v", v, err)
	}
}
