// SPDX-License-Identifier: MIT

package bytesize

import (
	"regexp"
	"testing"
)

func TestSizes(t *testing.T) {
	form := regexp.MustCompile(Pattern)
	for text, want := range map[string]int64{"0": 0, "1KiB": 1 << 10, "16MiB": 16 << 20, "1023MiB": 1023 << 20, "1GiB": 1 << 30} {
		if n, ok := Parse(text); n != want || !ok || String(n) != text {
			t.Errorf("%s: %d, %v, and back %s", text, n, ok, String(n))
		}
		if text != "0" && !form.MatchString(text) {
			t.Errorf("%s does not match the pattern", text)
		}
	}
	for _, text := range []string{"", "16", "-1KiB", "1.5MiB", "016MiB", "2GiB", "9999MiB", "1TiB", "16 MiB", "16mib"} {
		if n, ok := Parse(text); ok {
			t.Errorf("%q is read as %d", text, n)
		}
	}
	if s := String(1500); s != "1500" {
		t.Errorf("1500 bytes are %s", s)
	}
}
