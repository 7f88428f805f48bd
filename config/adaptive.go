// SPDX-License-Identifier: MIT

package config

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// readAdaptive reads what only an algorithm that adapts has.
func readAdaptive(m mapping, made *rule.Rule) {
	made.Limit.Min = m.get("min").whole()
	if made.Scope != rule.Local {
		m.failKey("scope", "scope: algo %s learns from the requests of one process, expected local, found %s", made.Algorithm.Name(), made.Scope)
	}
	if n := made.Limit.N; m.get("min").given() && n > 0 && made.Limit.Min > n {
		m.failKey("min", "min: expected at most rpu, which is %d, found %d", n, made.Limit.Min)
	}
	v, list := m.get("priority"), m.get("priorities")
	if text, ok := v.text(); ok {
		made.Priority = readNaming(v, text)
		if p := made.Priority; p.Kind == "header" && !v.r.remote && len(v.r.config.Identity.TrustedProxies) == 0 {
			v.r.warn(v.node, "priority: %s counts only from identity.trusted_proxies, and there are none; client:%s counts from every client", p, p.Name)
		}
	}
	if list.len() > bounds.MaxPriorities {
		list.fail("priorities: expected at most %d, found %d", bounds.MaxPriorities, list.len())
		return
	}
	for item := range list.list {
		name, ok := item.text()
		switch {
		case !ok:
		case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
			item.expected("characters that can be printed")
		case slices.Contains(made.Priorities, name):
			item.fail("priorities: expected each once, found %s again", name)
		}
		made.Priorities = append(made.Priorities, name)
	}
}

// readNaming reads which header or credential names a class or a priority.
func readNaming(v value, text string) rule.Actor {
	kind, name, _ := strings.Cut(text, ":")
	if slices.ContainsFunc(v.r.words.Actors, func(k rule.ActorKind) bool { return k.Kind == kind && k.Proved }) {
		a, _ := readOneActor(v)
		return a
	}
	if kind != "header" && kind != "client" {
		v.expected("header:NAME or client:NAME")
	} else if !httptext.IsToken(name) {
		v.fail("%s: expected the name of a header, found %q", v.key, name)
	}
	return rule.Actor{Kind: kind, Name: http.CanonicalHeaderKey(name)}
}

// readPercent reads a percentage for limit.Limit, where 0 means the default and -1 none.
func readPercent(v value) int64 {
	if !v.given() {
		return 0
	}
	digits, percent := strings.CutSuffix(v.node.Value, "%")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !percent || err != nil || n > bounds.MaxPercent || strconv.FormatUint(n, 10) != digits {
		v.expected("a percentage of 0% to " + strconv.Itoa(bounds.MaxPercent) + "%, such as 10%")
		return 0
	}
	if n == 0 {
		return -1
	}
	return int64(n) //nolint:gosec // at most MaxPercent
}

// readMeasure reads until when a request is measured.
func readMeasure(v value) string {
	text, ok := v.text()
	if ok && text != "begin" && text != "byte" && text != "end" {
		v.expected("begin, byte or end", "begin", "byte", "end")
	}
	return text
}
