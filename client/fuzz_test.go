// SPDX-License-Identifier: MIT

package client

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzFields has a host learn from whatever fields a server sends. Nothing panics.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`"a";r=7;t=3, "b";r=0`, `"a\"b\\";r=1;pk=:YQ==:;x=?1;y=-1.5;z="\\"`, "default;r=1", `"a";r=999999999999999;t=999999999999999`,
		"", ",", ";", `"`, `"\`, "a;", "a;=", "a;b=", " a , b ", "1767355220", "-1", "5.5", "Fri, 02 Jan 2026 11:00:00 GMT",
		strings.Repeat(`"a";r=1, `, 900) + "b",
	} {
		f.Add(s, s)
	}
	noon := time.Date(2026, 1, 2, 12, 0, 0, 5e8, time.UTC)
	f.Fuzz(func(t *testing.T, one, other string) {
		for _, names := range [][2]string{
			{"Ratelimit", "Ratelimit-Policy"}, {"Ratelimit-Remaining", "Ratelimit-Reset"}, {"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
			{"Retry-After", "Date"},
		} {
			h := http.Header{names[0]: {one}, names[1]: {other}}
			host := &host{}
			c := &call{folder: "/", under: anyPolicy}
			host.count(c.under, 1)
			host.answered(c, &http.Response{StatusCode: 429, Header: h})
			host.allows(host.policiesOf("/"), noon)
		}
	})
}
