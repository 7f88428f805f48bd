// SPDX-License-Identifier: MIT

package rule

import (
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/":               "/",
		"/sample/":        "/sample",
		"POST /login":     "POST /login",
		"POST   /login/":  "POST /login",
		"M-SEARCH /":      "M-SEARCH /",
		"//a/./b/../c":    "/a/c",
		"/%73ample":       "/sample",
		"/users/{id}/pic": "/users/{id}/pic",
	} {
		var got Pattern
		if err := got.UnmarshalText([]byte(text)); err != nil || got.String() != want {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":            "empty",
		"sample":      "begins with /",
		"post /login": "not a method",
		"/a?b=c":      "query",
		"/a#b":        "query or fragment",
		"/a{id}":      "whole segment",
		"/{}":         "whole segment",
		"/{a}{b}":     "whole segment",
		"GET ":        "begins with /",
		" /s":         "not a method",
		"* /s":        "not a method",
		"GET|PUT /s":  "not a method",
		"GET,PUT /s":  "not a method",
		"-GET /s":     "not a method",
		"GET /s ":     "without spaces",
		"GET /s, /t":  "without spaces",
		"/s ":         "without spaces",
		"/s /t":       "without spaces",
	} {
		if err := new(Pattern).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
