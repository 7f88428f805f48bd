// SPDX-License-Identifier: MIT

package plan

import "testing"

func TestActorName(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":                                       "all",
		"header:X-Account-Id=3:ann;":             "ann",
		"header:X-Account-Id=6:a;b=1:;":          "a;b=1:",
		"ip=192.0.2.1;":                          "192.0.2.1",
		"ip=2001:db8:1:2::/64;":                  "2001:db8:1:2::/64",
		"header:X-Account-Id=3:ann;ip=10.0.0.1;": "ann + 10.0.0.1",
		"header:X-Account-Id=6:登录;":              "登录",
		"header:X=sha256:00ff;":                  "sha256:00ff",
		"header:X=0:;":                           "",
		"header:X=9:ann;":                        "header:X=9:ann;",
		"header:X=-1:ann;":                       "header:X=-1:ann;",
		"4:user3:ann":                            "4:user3:ann",
		"x=":                                     "x=",
	} {
		if got := ActorName(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
