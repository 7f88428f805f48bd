// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// native is a rule.Native over a request of net/http. It counts the copies.
type native struct {
	r      *http.Request
	copies *int
}

func (n native) Context() context.Context   { return n.r.Context() }
func (n native) Field(name string) []string { return n.r.Header[name] }
func (n native) Host() string               { return n.r.Host }
func (n native) Query() string              { return n.r.URL.RawQuery }
func (n native) Peer() string               { return n.r.RemoteAddr }
func (n native) HTTP() *http.Request {
	*n.copies++
	return n.r.Clone(n.r.Context())
}

// explained returns explanations as a text.
func explained(list []diana.Explanation) (text string) {
	for _, e := range list {
		name, limit := e.Rule.Name, e.Rule.Limit
		e.Rule = nil
		text += fmt.Sprintf("%s %v %+v\n", name, limit, e)
	}
	return text
}

// Rules, identity, exceptions, classes, costs and decisions are the same for a request over HTTP and for a Native.
func TestNative(t *testing.T) {
	t.Parallel()
	v := config.DefaultVocabulary()
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "scheme", Find: func(r *http.Request, _ string) string { return r.Proto }})
	yaml := `
identity: {account: ["header:X-Account-Id", "query:key"], device: ["cookie:device"], trusted_proxies: [10.0.0.0/8]}
limits:
- url: /
  rules:
  - {name: account, actor: account, unit: day, rpu: 5, except: [boss], overrides: {ann: {rpu: 2}}}
  - {name: device, actor: device, unit: day, rpu: 7, class: "header:X-Plan", classes: {gold: {rpu: 9}}}
  - {name: ip, actor: ip, unit: day, rpu: 30, cost: "header:X-Cost", except: [192.0.2.9]}
  - {name: client, actor: [host, "header:Host"], unit: day, rpu: 50, cost: "client:X-Cost"}
- {url: DELETE /x, rules: [{name: delete, unit: day, rpu: 3}]}
`
	parse := func(text string) *config.Config {
		c, err := v.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	made := func(text string) *diana.Limiter {
		l, err := diana.Options{Vocabulary: v}.New(parse(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	copied, asked := made(yaml), made(yaml)
	request := func(peer, host, query string, header http.Header) *http.Request {
		return &http.Request{Method: "GET", URL: &url.URL{Path: "/x", RawQuery: query}, Host: host, RemoteAddr: peer, Header: header, Proto: "p"}
	}
	requests := []*http.Request{
		request("", "", "", nil),
		request("192.0.2.1:80", "a.example:80", "", http.Header{"X-Account-Id": {"ann"}}),
		request("192.0.2.1:80", "A.example", "key=bob&x=1", http.Header{"Cookie": {"a=b; device=d1", "c=d"}}),
		request("192.0.2.1:80", "a", "key=a&key=b", http.Header{"X-Account-Id": {"boss"}, "Cookie": {"device=1; device=2"}}),
		request("10.0.0.1:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9", "192.0.2.7, 10.2.3.4"}, "X-Plan": {"gold"}, "X-Cost": {"3"}}),
		request("192.0.2.4:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9"}, "X-Plan": {"gold"}, "X-Cost": {"3"}}),
		request("10.0.0.1:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9"}, "X-Plan": {"gold", "lead"}, "X-Cost": {"x"}}),
		request("[2001:db8::1]:80", "a", "", http.Header{"X-Account-Id": {"ann", "bob"}, "X-Http-Method-Override": {"PUT, delete"}}),
		diana.WithActor(diana.WithCost(request("192.0.2.1:80", "a", "", http.Header{"X-Account-Id": {"ann"}}), "X-Cost", 4), "account", "eve"),
		diana.WithActor(request("192.0.2.1:80", "a", "", http.Header{"X-Account-Id": {"ann"}}), "account", ""),
	}
	copies := 0
	for round := range 4 {
		for i, r := range requests {
			one, other := diana.Request{Method: "GET", Path: "/x", HTTP: r}, diana.Request{Method: "GET", Path: "/x", Native: native{r, &copies}}
			account, device, ip := copied.Identify(one)
			if a, d, p := asked.Identify(other); a != account || d != device || p != ip {
				t.Errorf("request %d: %q, %q, %v, want %q, %q, %v", i, a, d, p, account, device, ip)
			}
			want, err := copied.Explain(one)
			got, failed := asked.Explain(other)
			if err != nil || failed != nil || explained(got) != explained(want) {
				t.Errorf("request %d: %s, %v, want %s, %v", i, explained(got), failed, explained(want), err)
			}
			d, err := copied.Take(context.Background(), one)
			take := asked.Take
			if round%2 > 0 {
				take = asked.Prepare("GET", "/x").Take
			}
			e, failed := take(context.Background(), other)
			if err != nil || failed != nil || d.Allowed != e.Allowed || len(d.Verdicts) != len(e.Verdicts) {
				t.Errorf("round %d, request %d: %v, %v, want %v, %v", round, i, e.Allowed, failed, d.Allowed, err)
			}
			for j := range min(len(d.Verdicts), len(e.Verdicts)) {
				if d.Verdicts[j].Rule.Name != e.Verdicts[j].Rule.Name || d.Verdicts[j].Remaining != e.Verdicts[j].Remaining {
					t.Errorf("round %d, request %d: %+v, want %+v", round, i, e.Verdicts[j], d.Verdicts[j])
				}
			}
			d.Done()
			e.Done()
		}
	}
	if copies > 0 {
		t.Errorf("%d copies were made, want none", copies)
	}
	own := made("{url: /, rules: [{name: r, actor: scheme, rpu: 1}, {name: s, actor: [scheme, ip], rpu: 1}]}")
	list, err := own.Explain(diana.Request{Path: "/", Native: native{requests[1], &copies}})
	if err != nil || len(list) != 2 || list[0].Key != "scheme=1:p;" || copies != 1 {
		t.Errorf("%+v, %v and %d copies; want the key of a kind without Ask, by one copy", list, err, copies)
	}
}

// A Native proves an identity as a request over HTTP does. A credential that is not valid, or dropped, is no way around it.
func TestNativeCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: day, rpu: 1}]")
	take := func(lines ...string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(lines); i += 2 {
			r.Header.Add(lines[i], lines[i+1])
		}
		copies := 0
		d, err := k.Take(t.Context(), diana.Request{Method: r.Method, Path: "/", Native: native{r, &copies}})
		defer d.Done()
		var failed *rule.CredentialError
		if errors.As(err, &failed) {
			return fmt.Sprint(failed.Status)
		}
		return fmt.Sprint(d.Allowed, err)
	}
	for i, tc := range []struct {
		lines []string
		want  string
	}{
		{nil, "401"},
		{[]string{"X-Api-Key", "guessed"}, "401"},
		{[]string{"X-Api-Key", k.keys["eve"]}, "401"},
		{[]string{"X-Api-Key", k.keys["ann"]}, "true <nil>"},
		{[]string{"X-Api-Key", k.keys["ann"]}, "false <nil>"},
		{[]string{"X-Api-Key", k.keys["bob"]}, "true <nil>"},
	} {
		if got := take(tc.lines...); got != tc.want {
			t.Errorf("request %d: %s, want %s", i, got, tc.want)
		}
	}
}
