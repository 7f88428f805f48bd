// SPDX-License-Identifier: MIT

package config

import (
	"strings"
	"testing"

	"github.com/diana-limiter/diana/rule"
)

func TestParseActor(t *testing.T) {
	t.Parallel()
	v := DefaultVocabulary()
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "tenant"})
	for text, want := range map[string]string{
		"all": "all", "account": "account", "actor": "account", "device": "device", "ip": "ip", "tenant": "tenant",
		"header:x-a": "header:X-A", "cookie:S": "cookie:S", "query:k": "query:k",
	} {
		if a, err := v.ParseActor(text); err != nil || a.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, a, err, want)
		}
	}
	for text, want := range map[string]string{
		"":           `unknown actor "", expected all, account, device, ip, header:NAME, cookie:NAME, query:NAME, body:/POINTER, host, cert:NAME, key:NAME or tenant`,
		"Device":     "unknown actor",
		"header":     "lacks a name, expected header:NAME",
		"header:":    "lacks a name",
		"header:a b": "expected the name of a header",
		"tenant:x":   "has a name, expected tenant",
	} {
		if _, err := v.ParseActor(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
