// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/diana-limiter/diana"
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
	set, err := compile(l.Config())
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
		decision         diana.Decision
		err              error
		out, errs, fails string
	}{
		{"reachable", diana.Decision{Allowed: true, Verdicts: verdicts}, nil, peeked, "", ""},
		{"out of reach", diana.Decision{Allowed: true, Degraded: true, Verdicts: verdicts}, nil, unpeeked, "diana: Redis is out of reach, so what is left of global rules is unknown\n", ""},
		{"an error", diana.Decision{}, errors.New("timeout"), "", "", "--peek: timeout"},
	} {
		var out, errs bytes.Buffer
		o := &output{out: &out, err: &errs}
		err := printExplanation(o, settings{file: "diana.yaml"}, l.Config(), &r, "", func() (map[string]left, error) {
			return leftOfRules(o, test.decision, test.err)
		})
		if out.String() != test.out || errs.String() != test.errs || (err == nil) != (test.fails == "") || err != nil && err.Error() != test.fails {
			t.Errorf("%s: %v\n%s%s", test.name, err, out.String(), errs.String())
		}
	}
}
