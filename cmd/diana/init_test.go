// SPDX-License-Identifier: MIT

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// The starter is valid as it is, with each of its commented settings, and with all of them.
func TestStarter(t *testing.T) {
	t.Parallel()
	valid := func(name, text string) {
		t.Helper()
		c, err := command.Vocabulary().Parse("starter.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if _, err := command.Compile(c); err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", name, err, c.Warnings)
		}
	}
	text := string(starter)
	valid("as it is", text)
	commented := regexp.MustCompile(`(?m)^( *)#(\w[^\n]*(?:\n#  [^\n]*)*)`)
	blocks := commented.FindAllString(text, -1)
	for _, key := range []string{"redis:", "remote:", "trusted_proxies:", "scope:", "mode:"} {
		if !strings.Contains(strings.Join(blocks, "\n"), "#"+key) {
			t.Errorf("no commented %s", key)
		}
	}
	uncommented := func(block string) string { return regexp.MustCompile(`(?m)^( *)#`).ReplaceAllString(block, "$1") }
	for _, block := range blocks {
		if !strings.Contains(block, "scope:") { // which needs redis
			valid(block, strings.Replace(text, block, uncommented(block), 1))
		}
	}
	all := commented.ReplaceAllStringFunc(text, uncommented)
	valid("with all", all)
	c, err := command.Vocabulary().Parse("starter.yaml", []byte(all))
	if err != nil || c.Redis == nil || c.Remote == nil || len(c.Identity.TrustedProxies) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
}
