// SPDX-License-Identifier: MIT

package admin

import (
	"strings"
	"testing"
)

// TestAddress reads what users write after --admin. No message shows a password.
func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:9090": "http://127.0.0.1:9090",
		"https://host:9090/":    "https://host:9090/",
		"127.0.0.1:9090":        "http://127.0.0.1:9090",
		"localhost:9090":        "http://localhost:9090",
		"[::1]:9090":            "http://[::1]:9090",
	} {
		var a Address
		if err := a.UnmarshalText([]byte(text)); err != nil || a.URL.String() != want {
			t.Errorf("%s: got %v, %v, want %s", text, a.URL, err, want)
		}
	}
	for _, text := range []string{"", "http:/x", ":9090", "ftp://host:1", "ann:s3cret@host:1", "http://ann:s3cret@host:1", "http://ann:s3cret@%zz", "http://", "host:port"} {
		var a Address
		if err := a.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "expected http://HOST:PORT") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
