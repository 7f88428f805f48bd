// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// peeked is what PeekActor says, in one line for each key.
func peeked(t *testing.T, l *diana.Limiter, rule string, actor ...string) string {
	t.Helper()
	explained, verdicts, err := l.PeekActor(t.Context(), rule, actor...)
	var b strings.Builder
	for i, v := range verdicts {
		e := explained[i]
		fmt.Fprintf(&b, "%s %v %d/%d", e.Key, v.Allowed, v.Remaining, v.Rule.Limit.N)
		if e.Excepted {
			b.WriteString(" excepted")
		}
		if e.By != (diana.Explanation{}).By {
			fmt.Fprintf(&b, " by %v", e.By)
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return b.String()
}

const peekRules = `
identity: {account: [header:X-Account, cookie:u]}
limits:
- {url: /account, rules: [{name: account, actor: account, unit: day, rpu: 3, algo: W, align: first, except: [root], overrides: {eve: {rpu: 9}, bob: {exempt: true, until: 2030-01-01T00:00:00Z}}}]}
- {url: /both, rules: [{name: both, actor: [account, ip], unit: day, rpu: 3, algo: TB, overrides: {198.51.100.0/24: {rpu: 7}}}]}
- {url: /all, rules: [{name: all, unit: day, rpu: 3, algo: SL}]}
- {url: /slots, rules: [{name: slots, actor: ip, algo: C, rpu: 3}]}
`

// PeekActor says what is left for an actor under each of its keys, and changes nothing.
func TestPeekActor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := clocked(t, peekRules, &now)
	request := func(path, account, ip string) diana.Request {
		return diana.Request{Path: path, Actors: map[string]string{"header:X-Account": account, "ip": ip}}
	}
	for _, path := range []string{"/account", "/both", "/all", "/slots"} {
		for range 2 {
			d, err := l.Take(t.Context(), request(path, "ann", "192.0.2.1"))
			if err != nil || !d.Allowed {
				t.Fatalf("%s: %v, %v", path, d.Allowed, err)
			}
			defer d.Done() // until then it holds a slot
		}
	}
	for _, row := range []struct{ rule, actor, want string }{
		{"account", "ann", "account=3:ann; true 3/3\nheader:X-Account=3:ann; true 1/3\ncookie:u=3:ann; true 3/3\n"},
		{"account", "header:X-Account=3:ann;", "header:X-Account=3:ann; true 1/3\n"},
		{"account", "header:X-Account=eve", "header:X-Account=3:eve; true 9/9 by eve\n"},
		{"account", "header:X-Account=3:eve;", "header:X-Account=3:eve; true 9/9 by eve\n"},
		{"account", "header:X-Account=root", "header:X-Account=4:root; true -1/3 excepted by root\n"},
		{"account", "header:X-Account=bob", "header:X-Account=3:bob; true -1/3 excepted by bob\n"},
		{"both", "header:X-Account=ann ip=192.0.2.1", "header:X-Account=3:ann;ip=192.0.2.1; true 1/3\n"},
		{"both", "header:X-Account=ann ip=198.51.100.7", "header:X-Account=3:ann;ip=198.51.100.7; true 7/7 by 198.51.100.0/24\n"},
		{"all", "all", " true 1/3\n"},
		{"slots", "192.0.2.1", "ip=192.0.2.1; true 1/3\n"},
		{"slots", "ann", "actor \"ann\": expected an IP address\n"},
		{"none", "ann", "no rule has the name \"none\""},
	} {
		for range 2 { // it changes nothing
			got := peeked(t, l, row.rule, strings.Fields(row.actor)...)
			if got = strings.ReplaceAll(got, fmt.Sprint(limit.Unknown)+"/", "-1/"); got != row.want && (row.rule != "none" || !strings.HasPrefix(got, row.want)) {
				t.Errorf("%s of %s:\n%s, want\n%s", row.actor, row.rule, got, row.want)
			}
		}
	}
	count(t, l, 1, request("/account", "ann", "192.0.2.1"))
	if got, want := peeked(t, l, "account", "header:X-Account=3:ann;"), "header:X-Account=3:ann; false 0/3\n"; got != want {
		t.Errorf("after the last: %s, want %s", got, want)
	}
}

// Redis answers for a global rule. While it is unavailable, what is left is unknown, and PeekActor says why.
func TestPeekActorInRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := gateways(t, 1, s.URL(), "1s", "- {url: /, rules: [{name: g, actor: device, unit: day, rpu: 5, algo: W, align: first, scope: global}]}")[0]
	count(t, l, 2, device("/", "ann"))
	if got, want := peeked(t, l, "g", "device=3:ann;"), "device=3:ann; true 3/5\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Kill()
	_, verdicts, err := l.PeekActor(t.Context(), "g", "ann")
	if err == nil || len(verdicts) == 0 || verdicts[0].Remaining != limit.Unknown || !verdicts[0].Allowed {
		t.Errorf("without Redis: %+v, %v", verdicts, err)
	}
}
