// SPDX-License-Identifier: MIT

package versions

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
)

// exempting returns the remote configuration of a file that nobody reads.
func exempting(t *testing.T) *Remote {
	t.Helper()
	words := config.DefaultVocabulary()
	local, err := words.Parse("local.yaml", []byte("remote: {url: file:///nowhere/limits.yaml}\nlimits: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(words, local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// The text of an exemption is added where a rule can have it. All else stays, byte by byte.
func TestExempt(t *testing.T) {
	t.Parallel()
	const added = `"ann": {exempt: true, until: 2026-12-01T00:00:00Z}`
	r := exempting(t)
	for name, row := range map[string]struct{ text, want string }{
		"a mapping in flow": {
			"limits: [{url: /, rules: [{name: r, actor: account, rpu: 1}]}] # all\n",
			"limits: [{url: /, rules: [{overrides: {" + added + "}, name: r, actor: account, rpu: 1}]}] # all\n",
		},
		"lines": {
			"- url: /\n  rules:\n    - name: other\n      rpu: 1\n    # of ann\n    - name: r # the name\n      # the actor\n      actor: account\n      rpu: 1\n",
			"- url: /\n  rules:\n    - name: other\n      rpu: 1\n    # of ann\n    - name: r # the name\n      overrides: {" + added + "}\n      # the actor\n      actor: account\n      rpu: 1\n",
		},
		"the first key has lines": {
			"url: /\nrules:\n- except:\n  - bob\n  name: r\n  actor: account\n  rpu: 1",
			"url: /\nrules:\n- overrides: {" + added + "}\n  except:\n  - bob\n  name: r\n  actor: account\n  rpu: 1",
		},
		"no end of the last line": {
			"url: /\nrules:\n- rpu: 1\n  actor: account\n  name: r",
			"url: /\nrules:\n- rpu: 1\n  overrides: {" + added + "}\n  actor: account\n  name: r",
		},
		"overrides in flow": {
			"url: /\nrules: [{name: r, actor: account, rpu: 1, overrides: {bob: {rpu: 2}}}]\n",
			"url: /\nrules: [{name: r, actor: account, rpu: 1, overrides: {" + added + ", bob: {rpu: 2}}}]\n",
		},
		"overrides in lines": {
			"url: /\nrules:\n- name: r\n  actor: account\n  rpu: 1\n  overrides:\n    # more\n    bob: {rpu: 2}\n",
			"url: /\nrules:\n- name: r\n  actor: account\n  rpu: 1\n  overrides:\n    # more\n    " + added + "\n    bob: {rpu: 2}\n",
		},
		"a longer exemption": {
			"url: /\nrules: [{name: r, actor: account, rpu: 1, overrides: {ann: {exempt: true, until: \"2026-11-01T00:00:00Z\"}}}]\n",
			"url: /\nrules: [{name: r, actor: account, rpu: 1, overrides: {ann: {exempt: true, until: \"2026-12-01T00:00:00Z\"}}}]\n",
		},
		"line ends of Windows": {
			"url: /\r\nrules:\r\n- name: r\r\n  actor: account\r\n  rpu: 1\r\n",
			"url: /\r\nrules:\r\n- name: r\r\n  overrides: {" + added + "}\r\n  actor: account\r\n  rpu: 1\r\n",
		},
		"wide characters": {
			"limits: [{url: /登录, rules: [{name: '规则', rpu: 9}, {name: r, actor: account, rpu: 1}]}]",
			"limits: [{url: /登录, rules: [{name: '规则', rpu: 9}, {overrides: {" + added + "}, name: r, actor: account, rpu: 1}]}]",
		},
		"a byte order mark": {
			"\uFEFF{url: /, rules: [{name: r, actor: account, rpu: 1}]}",
			"\uFEFF{url: /, rules: [{overrides: {" + added + "}, name: r, actor: account, rpu: 1}]}",
		},
		"documents": {
			"url: /\nrules: [{name: a, rpu: 1}]\n---\nurl: /b\nrules: [{name: r, actor: account, rpu: 1}]\n",
			"url: /\nrules: [{name: a, rpu: 1}]\n---\nurl: /b\nrules: [{overrides: {" + added + "}, name: r, actor: account, rpu: 1}]\n",
		},
	} {
		got, who, err := r.Exempt([]byte(row.text), Exemption{"r", []string{"ann"}, time.Date(2026, 12, 1, 0, 0, 0, 5, time.UTC)})
		if err != nil || string(got) != row.want || who.String() != "ann" {
			t.Errorf("%s: %v, %v\n%s\nwant\n%s", name, who, err, got, row.want)
		}
	}
}

// A document that cannot have the exemption in place stays as it is.
func TestExemptImpossible(t *testing.T) {
	t.Parallel()
	r := exempting(t)
	for name, row := range map[string]struct{ text, want string }{
		"two rules of one text": {"- {url: /a, rules: &x [{actor: account, rpu: 1}]}\n- {url: /b, rules: *x}\n", "the layout of the document"},
		"another override":      {"{url: /, rules: [{name: r, actor: account, rpu: 1, overrides: {ann: {rpu: 5}}}]}", "has an override of ann already"},
		"exempt without an end": {"{url: /, rules: [{name: r, actor: account, rpu: 1, overrides: {ann: {exempt: true}}}]}", "without an end"},
		"except":                {"{url: /, rules: [{name: r, actor: account, rpu: 1, except: [ann]}]}", "excepts ann already"},
		"all":                   {"{url: /, rules: [{name: r, rpu: 1}]}", `expected the actor "all"`},
		"no rule":               {"{url: /, rules: [{name: other, rpu: 1}]}", "no rule has the name"},
		"a mistake":             {"{url: /, rules: [{name: r, rpu: -1}]}", "rpu"},
	} {
		rule := "r"
		if name == "two rules of one text" {
			rule = "/a account TB 1/second"
		}
		got, _, err := r.Exempt([]byte(row.text), Exemption{rule, []string{"ann"}, time.Now().Add(time.Hour)})
		if err == nil || !strings.Contains(err.Error(), row.want) || got != nil {
			t.Errorf("%s: %s, %v, want %q", name, got, err, row.want)
		}
	}
}

// Any name of an actor that a client can send is exempt under this name, or refused.
func TestExemptHostileActors(t *testing.T) {
	t.Parallel()
	r := exempting(t)
	const text = "url: /\nrules:\n- name: r\n  actor: account\n  rpu: 1\n"
	for _, actor := range []string{`"`, "'", "a: b", "#", "&a", "*a", "a\nb", "\x00", "\x7f", "\x1b[2J", "true", "null", "~", "0x1f", "2026-01-01", "=", "==x", "=ann", "<<", "? a", "- a", "{a}", "a}, b: {exempt: true", "\u2028", "\u0085", "\uFEFF", "\xff\xfe", strings.Repeat("x", 10_000), "日本", "{{.}}", "account=x", "account=1:x;", "10.0.0.1", "2001:db8::1", "10.0.0.0/8", " a ", "\t"} {
		until := time.Now().Add(time.Hour)
		next, who, err := r.Exempt([]byte(text), Exemption{"r", []string{actor}, until})
		if err != nil {
			if !errors.As(err, new(refusal)) || next != nil {
				t.Errorf("%.50q: %v", actor, err)
			}
			continue
		}
		c, err := r.Compose("next", next)
		if err != nil || len(c.Limits[0].Rules[0].Overrides) != 1 || c.Limits[0].Rules[0].Overrides[0].Who != who {
			t.Errorf("%.50q: %v, %+v", actor, err, c)
		}
		again, _, err := r.Exempt(next, Exemption{"r", []string{actor}, until.Add(time.Hour)})
		if err != nil || strings.Count(string(again), "exempt") != strings.Count(string(next), "exempt") {
			t.Errorf("%.50q again: %v\n%s", actor, err, again)
		}
	}
}
