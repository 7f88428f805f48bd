// SPDX-License-Identifier: MIT

package apikeys

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sum = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// A line says what it means, and a broken one is an error that does not show it.
func TestLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		sum + " ann":     "ann||never",
		sum + " ann pro": "ann|pro|never",
		sum + " ann pro until=2027-01-31 disabled":     "ann|pro|2027-02-01T00:00:00Z disabled",
		sum + " ann until=2027-01-31T10:00:00+02:00":   "ann||2027-01-31T08:00:00Z",
		sum + " ann disabled":                          "ann||never disabled",
		sum:                                            "expected an account",
		"dk_secret ann":                                "expected sha256:",
		"sha256:00 ann":                                "expected sha256:",
		sum + " ann pro max":                           "in this order",
		sum + " ann disabled disabled":                 "in this order",
		sum + " ann until=tomorrow":                    "until=: expected a day",
		sum + " ann until=2027-01-31 until=2028-01-01": "in this order",
		sum + " " + strings.Repeat("a", 257):           "at most 256 bytes",
		sum + " \x01":                                  "can be printed",
	} {
		l, err := parseLine(line)
		got := l.Account + "|" + l.Class + "|never"
		if !l.Until.IsZero() {
			got = l.Account + "|" + l.Class + "|" + l.Until.UTC().Format(time.RFC3339)
		}
		if l.Disabled {
			got += " disabled"
		}
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// A file is read again after it changes. A broken or missing one changes nothing.
func TestFollow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "keys")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("# keys\n\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, firstLine, err := New("ann", "pro", "")
	if err != nil {
		t.Fatal(err)
	}
	second, secondLine, _ := New("ann", "", now.Add(time.Hour).Format(time.RFC3339))
	write(firstLine)
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.now = func() time.Time { return now }
	account := func(key string) string {
		proof, err := f.Verify(context.Background(), key)
		if err != nil {
			return "401"
		}
		return proof("account") + "/" + proof("class") + proof("other")
	}
	want := func(when, one, two string) {
		t.Helper()
		now = now.Add(time.Second)
		if a, b := account(first), account(second); a != one || b != two {
			t.Errorf("%s: %s and %s, want %s and %s", when, a, b, one, two)
		}
	}
	want("at first", "ann/pro", "401")
	write(firstLine, secondLine)
	want("while keys rotate", "ann/pro", "ann/")
	write(firstLine+" disabled", secondLine)
	want("one disabled", "401", "ann/")
	write("nonsense")
	want("a broken file", "401", "ann/")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("no file", "401", "ann/")
	write(secondLine, secondLine)
	want("a key twice", "401", "ann/")
	write(firstLine, secondLine)
	want("mended", "ann/pro", "ann/")
	now = now.Add(time.Hour)
	want("after the end", "ann/pro", "401")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	write(secondLine)
	want("replaced", "401", "401")
}

// New refuses names that a line would read otherwise.
func TestNew(t *testing.T) {
	t.Parallel()
	for _, names := range [][3]string{{"", "", ""}, {"a b", "", ""}, {"a", "b c", ""}, {"a", "disabled", ""}, {"a", "until=2027-01-01", ""}, {"a", "", "x"}} {
		if _, line, err := New(names[0], names[1], names[2]); err == nil {
			t.Errorf("%q: %s", names, line)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add(sum + " ann pro until=2027-01-31 disabled\n# x\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parse([]byte(text))
		if err != nil && keys != nil {
			t.Error("keys beside an error")
		}
		for _, l := range keys {
			if l.Account == "" {
				t.Error("a key without an account")
			}
		}
	})
}
