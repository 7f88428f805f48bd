// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

const peeked = `GET /a is evaluated by 4 rules of diana.yaml, in this order:

   URL  RULE          ALGO  LIMIT      SCOPE   MODE     REMAINING  RESETS IN  KEY
1  /    each gateway  TB    5/second   local   enforce  -          -          all
2  /    a minute      W     50/minute  global  enforce  49         12.346s    all
3  /    slots         C     2 at once  global  enforce  2          -          all
4  /    unknown       TB    7/second   global  enforce  -          -          all
`

const unpeeked = `GET /a is evaluated by 4 rules of diana.yaml, in this order:

   URL  RULE          ALGO  LIMIT      SCOPE   MODE     REMAINING  RESETS IN  KEY
1  /    each gateway  TB    5/second   local   enforce  -          -          all
2  /    a minute      W     50/minute  global  enforce  -          -          all
3  /    slots         C     2 at once  global  enforce  -          -          all
4  /    unknown       TB    7/second   global  enforce  -          -          all
`

// --peek shows what is left of global rules only, because this process counts no local rule.
func TestExplainPeek(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, `
- url: /
  rules:
    - {name: each gateway, rpu: 5}
    - {name: a minute, rpu: 50, unit: minute, algo: W, scope: global}
    - {name: slots, rpu: 2, algo: C, scope: global}
    - {name: unknown, rpu: 7, scope: global}
`)
	outcomes := map[string]limit.Outcome{
		"each gateway": {Allowed: true, Remaining: 5},
		"a minute":     {Allowed: true, Remaining: 49, Reset: 12_345_678},
		"slots":        {Allowed: true, Remaining: 2},
		"unknown":      {Allowed: true, Remaining: limit.Unknown},
	}
	set, err := command.Compile(l.Config())
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []diana.Verdict
	for _, r := range set.Rules {
		verdicts = append(verdicts, diana.Verdict{Rule: r.Rule, Outcome: outcomes[r.Name]})
	}
	h := httptest.NewRequest("GET", "/a", nil)
	r := rule.Request{Method: "GET", Path: "/a", HTTP: h}
	for _, test := range []struct {
		name             string
		redis            bool
		decision         diana.Decision
		err              error
		out, errs, fails string
	}{
		{"reachable", true, diana.Decision{Allowed: true, Verdicts: verdicts}, nil, peeked, "", ""},
		{"out of reach", true, diana.Decision{Allowed: true, Degraded: true, Verdicts: verdicts}, nil, unpeeked, "diana: Redis is out of reach, so what is left of global rules is unknown\n", command.ErrReported.Error()},
		{"no redis", false, diana.Decision{Allowed: true, Degraded: true, Verdicts: verdicts}, nil, unpeeked, "diana: the configuration has no redis, so each gateway counts for itself, and --peek shows nothing without --admin URL\n", ""},
		{"an error", true, diana.Decision{}, errors.New("timeout"), "", "", "--peek: timeout"},
	} {
		var out, errs bytes.Buffer
		o := &command.Output{Out: &out, Err: &errs}
		err := printExplanation(o, command.Settings{File: "diana.yaml"}, l.Config(), &r, "", func() (map[string]left, error) {
			return leftOfRules(o, test.redis, test.decision, test.err)
		})
		if out.String() != test.out || errs.String() != test.errs || (err == nil) != (test.fails == "") || err != nil && err.Error() != test.fails {
			t.Errorf("%s: %v\n%s%s", test.name, err, out.String(), errs.String())
		}
	}
}

// With --admin, each gateway shows what it has counted of a local rule, and Redis' count of a global one. Without Redis
// it shows its own share.
func TestExplainPeekInFleet(t *testing.T) {
	t.Parallel()
	redis, s := redistest.Start(t), newSite(t, nil)
	yaml := fmt.Sprintf("redis: {url: %q, %s}\nlimits: [{url: /, rules: [{name: own, unit: total, algo: W, rpu: 8}, {name: all, unit: total, algo: W, rpu: 9, scope: global}]}]", redis.URL(), patient)
	a, b := serve(t, yaml, s.upstream.URL), serve(t, yaml, s.upstream.URL)
	for _, g := range []*served{a, b} { // the share of each depends on how many it knows
		testproc.Eventually(t, func() bool { s := g.status(t); return !s.Degraded && s.Gateways == 2 })
	}
	s.allowed(t, a.url, 3)
	peek := func(g *served, own, all int) (complaint string) {
		t.Helper()
		status, out, complaint := runDiana(t, "explain", "--config", g.file, "--peek", "--admin", g.admin, "/")
		for name, want := range map[string]int{"own": own, "all": all} {
			if !regexp.MustCompile(fmt.Sprintf(`%s .* enforce  %d  +-  +all`, name, want)).MatchString(out) {
				t.Errorf("status %d, want %d for %s:\n%s%s", status, want, name, out, complaint)
			}
		}
		return complaint
	}
	if complaint := peek(a, 5, 6) + peek(b, 8, 6); complaint != "" {
		t.Error(complaint)
	}
	redis.Kill()
	if complaint := peek(b, 8, 4); complaint != "diana: the gateway has no Redis now, so it counts global rules by itself\n" {
		t.Error(complaint)
	}
}
