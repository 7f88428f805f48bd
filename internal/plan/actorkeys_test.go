// SPDX-License-Identifier: MIT

package plan

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/rule"
)

const actorRules = `
identity:
  account: ["header:X-Account-Id", "cookie:acct"]
limits:
  - url: /
    rules:
      - {name: all, rpu: 1}
      - {name: account, actor: account, rpu: 1}
      - {name: ip, actor: ip, rpu: 1}
      - {name: plan, actor: "header:X-Plan", rpu: 1}
      - {name: host, actor: host, rpu: 1}
      - {name: both, actor: [ip, account], rpu: 1}
`

// actorSet returns the compiled actorRules.
func actorSet(t *testing.T) *Set {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(actorRules))
	if err != nil {
		t.Fatal(err)
	}
	set, err := Compile(c.Limits, c.Identity, c.Paths, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestActorKeys(t *testing.T) {
	t.Parallel()
	set := actorSet(t)
	sum := "sha256:" + strings.Repeat("0a", 32) + ";"
	for _, test := range []struct {
		rule  string
		texts []string
		keys  []string
		err   string
	}{
		{"all", []string{"all"}, []string{""}, ""},
		{"all", []string{"ann"}, nil, `rule "all" counts all requests together, expected the actor "all"`},
		{"account", []string{"ann"}, []string{"account=3:ann;", "header:X-Account-Id=3:ann;", "cookie:acct=3:ann;"}, ""},
		{"account", []string{"account=ann"}, []string{"account=3:ann;", "header:X-Account-Id=3:ann;", "cookie:acct=3:ann;"}, ""},
		{"account", []string{"header:x-account-id=ann"}, []string{"header:X-Account-Id=3:ann;"}, ""},
		{"account", []string{"header:X-Account-Id=3:ann;"}, []string{"header:X-Account-Id=3:ann;"}, ""},
		{"account", []string{"account=3:ann;"}, []string{"account=3:ann;"}, ""},
		{"account", []string{"a=b"}, []string{"account=3:a=b;", "header:X-Account-Id=3:a=b;", "cookie:acct=3:a=b;"}, ""},
		{"account", []string{"ip=192.0.2.1"}, []string{"ip=192.0.2.1;"}, ""},
		{"account", []string{"192.0.2.1"}, []string{"account=9:192.0.2.1;", "header:X-Account-Id=9:192.0.2.1;", "cookie:acct=9:192.0.2.1;", "ip=192.0.2.1;"}, ""},
		{"account", []string{"header:X-Account-Id=" + sum}, []string{"header:X-Account-Id=" + sum}, ""},
		{"account", []string{`"header:X-Account-Id=5:a\u200bb;"`}, []string{"header:X-Account-Id=5:a\u200bb;"}, ""},
		{"account", []string{""}, nil, `actor "": expected a value of account, or a key as diana explain prints it`},
		{"account", []string{"account="}, nil, `actor "account=": expected a value of account, or a key as diana explain prints it`},
		{"account", nil, nil, "actor account is missing, expected a value of account, or a key as diana explain prints it"},
		{"account", []string{"ann", "bob"}, nil, `actor "bob": account is given twice`},
		{"ip", []string{"192.0.2.1"}, []string{"ip=192.0.2.1;"}, ""},
		{"ip", []string{"ip=192.0.2.1;"}, []string{"ip=192.0.2.1;"}, ""},
		{"ip", []string{"2001:db8::1"}, []string{"ip=2001:db8::/64;"}, ""},
		{"ip", []string{"2001:db8::/64"}, []string{"ip=2001:db8::/64;"}, ""},
		{"ip", []string{"ip=none;"}, []string{"ip=none;"}, ""},
		{"ip", []string{"ann"}, nil, `actor "ann": expected an IP address`},
		{"plan", []string{"gold"}, []string{"header:X-Plan=4:gold;"}, ""},
		{"host", []string{"Shop.Example."}, []string{"host=12:shop.example;"}, ""},
		{"both", []string{"account=ann", "ip=192.0.2.1"}, []string{"ip=192.0.2.1;account=3:ann;", "ip=192.0.2.1;header:X-Account-Id=3:ann;", "ip=192.0.2.1;cookie:acct=3:ann;"}, ""},
		{"both", []string{"ip=192.0.2.1;cookie:acct=3:ann;"}, []string{"ip=192.0.2.1;cookie:acct=3:ann;"}, ""},
		{"both", []string{"ip=192.0.2.1", "account=192.0.2.1"}, []string{
			"ip=192.0.2.1;account=9:192.0.2.1;", "ip=192.0.2.1;header:X-Account-Id=9:192.0.2.1;", "ip=192.0.2.1;cookie:acct=9:192.0.2.1;", "ip=192.0.2.1;ip=192.0.2.1;",
		}, ""},
		{"both", []string{"ann"}, nil, `actor "ann": expected ip=VALUE and account=VALUE, or a key as diana explain prints it`},
		{"both", []string{"account=ann"}, nil, "actor ip is missing, expected ip=VALUE and account=VALUE, or a key as diana explain prints it"},
	} {
		r, err := set.Named(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := ActorKeys(set, r, test.texts)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%s %q: %q, %v, want the error %q", test.rule, test.texts, keys, err, test.err)
			}
		case err != nil || !slices.Equal(keys, test.keys):
			t.Errorf("%s %q: %q, %v, want %q", test.rule, test.texts, keys, err, test.keys)
		}
	}
}

// The text of a key that diana explain prints names that key alone.
func TestActorKeysOfExplain(t *testing.T) {
	t.Parallel()
	set := actorSet(t)
	for _, account := range []string{"ann", "a b;c=", "3:ann;", "\u200b", `"`, strings.Repeat("x", 300), ""} {
		h := httptest.NewRequest(http.MethodGet, "/", nil)
		h.Header.Set("X-Account-Id", account)
		h.Header.Set("X-Plan", account)
		explained, err := Explain(set, &rule.Request{Method: h.Method, Path: "/", HTTP: h})
		if err != nil || len(explained) != 6 {
			t.Fatal(explained, err)
		}
		for _, e := range explained {
			keys, err := ActorKeys(set, e.Rule, []string{ActorText(e.Key)})
			if err != nil || !slices.Equal(keys, []string{e.Key}) {
				t.Errorf("%s: %q, %v, want %q alone", e.Rule.Name, keys, err, e.Key)
			}
		}
	}
}

// An exception names an actor by its value, or by its address if it has one.
func TestWhoIs(t *testing.T) {
	t.Parallel()
	set := actorSet(t)
	for _, test := range []struct {
		rule  string
		texts []string
		want  string // of the Who, or of the error
	}{
		{"account", []string{"ann"}, "ann"},
		{"account", []string{"account=7:ann=1;x;"}, "ann=1;x"},
		{"account", []string{"192.0.2.1"}, "192.0.2.1"},
		{"ip", []string{"192.0.2.1"}, "192.0.2.1"},
		{"ip", []string{"ip=2001:db8:0:1::/64;"}, "2001:db8:0:1::/64"},
		{"ip", []string{"2001:db8:0:1::7"}, "2001:db8:0:1::/64"},
		{"ip", []string{"ann"}, `actor "ann": expected an IP address`},
		{"all", []string{"192.0.2.1"}, "192.0.2.1"},
		{"all", []string{"all"}, `actor "all": rule "all" can except it by an address alone, expected one`},
		{"both", []string{"ip=192.0.2.1", "account=ann"}, "192.0.2.1"},
		{"plan", []string{"header:X-Plan=sha256:" + strings.Repeat("00", 32) + ";"}, "an address alone"},
	} {
		r, err := set.Named(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		who, err := WhoIs(set, r, test.texts)
		if err == nil && who.String() != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v, %v, want %s", test.rule, test.texts, who, err, test.want)
		}
	}
}
