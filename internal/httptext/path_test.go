// SPDX-License-Identifier: MIT

package httptext

import (
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, want string }{
		{"", "/"},
		{"/", "/"},
		{"//", "/"},
		{"/sample", "/sample"},
		{"/sample/", "/sample"},
		{"//sample", "/sample"},
		{"/./sample", "/sample"},
		{"/sample/.", "/sample"},
		{"/%73ample", "/sample"},
		{"/sample/../sample", "/sample"},
		{"/a/b/../../../sample", "/sample"},
		{"/..", "/"},
		{"/.well-known/...", "/.well-known/..."},
		{"/Sample", "/Sample"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%2fb", "/a%2Fb"},
		{"/a%25b", "/a%25b"},
		{"/a%2541", "/a%2541"},
		{"/a%", "/a%25"},
		{"/a%zz", "/a%25zz"},
		{"/a;v=1", "/a;v=1"},
		{"/a%20b", "/a b"},
		{"sample", "/sample"},
		{"/%E4%B8%AD", "/中"},
		{"/" + strings.Repeat("x", 300) + "/", "/" + strings.Repeat("x", 300)},
	} {
		if got := CleanPath(tc.path); got != tc.want {
			t.Errorf("CleanPath(%q) = %q, want %q", tc.path, got, tc.want)
		}
	}
}
