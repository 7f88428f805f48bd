// SPDX-License-Identifier: MIT

package paths

import (
	"net/url"
	"testing"
)

// A byte that no URL may hold changes nothing else in the path.
func TestSent(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"/a/b":            "/a/b",
		"/a%2fb%41":       "/a%2fb%41",
		"/é%2fb":          "/%C3%A9%2fb",
		"/\xff%2F":        "/%FF%2F",
		`/a"%2e%2e|\#c`:   "/a%22%2e%2e%7C%5C%23c",
		"/é/%2e%2e/admin": "/%C3%A9/%2e%2e/admin",
		"/é%2541":         "/%C3%A9%2541",
	} {
		u, err := url.ParseRequestURI(sent)
		if err != nil {
			t.Fatal(err)
		}
		if got := Sent(u); got != want {
			t.Errorf("Sent(%q) = %q, want %q", sent, got, want)
		}
		u.RawPath = Sent(u)
		if got := u.EscapedPath(); got != want {
			t.Errorf("with this RawPath, the escaped path of %q is %q, want %q", sent, got, want)
		}
		u.Path = "/other"
		if got := Sent(u); got != "/other" {
			t.Errorf("after a change to /other, Sent returns %q", got)
		}
	}
}
