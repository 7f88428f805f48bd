// SPDX-License-Identifier: MIT

package actors

import "testing"

// A host has many spellings.
func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"": "", "example.com": "example.com", "Example.COM:443": "example.com", "example.com.:80": "example.com",
		"example.com:8080": "example.com:8080", "[::1]:80": "[::1]", "[2001:DB8::1]": "[2001:db8::1]", "b:8443": "b:8443",
		"h.": "h", "h.:8080": "h:8080", "h:": "h", "h:080": "h", "h:0443": "h", "h:08080": "h:8080", "h:80a": "h:80a", "H:+80": "h:+80",
		"[::]": "[::]", "[0:0::0001]:081": "[::1]:81", "[::FFFF:1.2.3.4]": "[::ffff:1.2.3.4]", "[::1": "[::1", "[x]:80": "[x]",
		".": "", ":80": "", "h..": "h.",
	} {
		if got := Host(host); got != want {
			t.Errorf("Host(%q) = %q, want %q", host, got, want)
		}
	}
}
