// SPDX-License-Identifier: MIT

package diff

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := words().Parse("x", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// words is the default vocabulary with one more source.
func words() config.Vocabulary {
	v := config.DefaultVocabulary()
	v.Sources = append(v.Sources, source.Kind{Schemes: []string{"etcd"}})
	return v
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	const redis = "redis: {url: 'redis://ann:s3cret@h:6379/0'}"
	for _, row := range []struct{ old, now, want string }{
		{"url: /\nrules: [{rpu: 1}]", "limits: [{url: /, rules: [{rpu: 1, algo: tb, unit: 1s, actor: all}]}]", ""},

		// settings
		{"max_keys: 5", "max_keys: 6", "max_keys 5 → 6"},
		{"max_keys: 5", redis, "redis added: url redis://h:6379/0, timeout 50ms, prefix diana, remember 16MiB\nmax_keys 5 → 1000000"},
		{redis, "limits: []", "redis removed"},
		{redis, "redis: {url: 'redis://ann:other@h:6379/0'}", "redis.url changed, in what is not shown"},
		{redis, "redis: {url: 'redis://h:6379/0', username: ann, password: s3cret, timeout: 1s}",
			"redis.url changed, in what is not shown\nredis.username none → ann\nredis.password none → (hidden)\nredis.timeout 50ms → 1s"},
		{redis, "redis: {cluster: ['a:1', 'b:1'], prefix: d}",
			"redis.url redis://h:6379/0 → none\nredis.cluster none → a:1, b:1\nredis.prefix diana → d"},
		{"redis: {cluster: ['a:1'], password: s3cret}", "redis: {cluster: ['a:1'], password: other}", "redis.password changed, in what is not shown"},
		{"redis: {cluster: ['a:1'], password: s3cret}", "redis: {cluster: ['a:1'], password: env:P}", "redis.password (hidden) → env:P"},
		{"redis: {cluster: ['a:1'], password: env:P}", "redis: {cluster: ['a:1']}", "redis.password env:P → none"},
		{"redis: {cluster: ['a:1'], tls: {}}", "redis: {cluster: ['a:1'], tls: {ca: /ca}}", "redis.tls.ca none → /ca"},
		{"redis: {cluster: ['a:1']}", "redis: {cluster: ['a:1'], tls: {ca: \"/c\\ta\", server_name: s}}", `redis.tls added: ca "/c\ta", server_name s`},
		{"redis: {cluster: ['a:1'], tls: {}}", "redis: {cluster: ['a:1']}", "redis.tls removed"},
		{"redis: {cluster: ['a:1']}", "redis: {sentinel: {master: m, addresses: ['a:1'], password: p}, tls: {}}",
			"redis.cluster a:1 → none\nredis.sentinel added: master m, addresses a:1, password (hidden)\nredis.tls added: {}"},
		{"limits: []", "redis: {sentinel: {master: m, addresses: ['a:1']}, tls: {}}",
			"redis added: sentinel (master m, addresses a:1), tls ({}), timeout 50ms, prefix diana, remember 16MiB"},
		{"remote: {url: 'etcd://u:s3cret@h/k', token: t}", "remote: {url: 'etcd://h/k', token: u, snapshot: s}",
			"remote.url changed, in what is not shown\nremote.token changed, in what is not shown\nremote.snapshot none → s"},
		{"identity: {account: [cookie:a], device: []}", "identity: {trusted_proxies: [10.0.0.0/8]}",
			"identity.account cookie:a → header:X-Account-Id\nidentity.device none → header:X-Device-Id\nidentity.trusted_proxies none → 10.0.0.0/8"},
		{"response: {status: 429}", "response: {headers: false}", "response.status 429 → 503\nresponse.headers true → false"},

		// rules by name
		{"url: /\nrules: [{rpu: 10, name: login}, {rpu: 1, name: y}]", "url: /\nrules: [{rpu: 20, name: login}]",
			"rule \"login\": rpu 10 → 20\nrule \"y\" removed"},
		{"url: /\nrules: [{rpu: 10, name: login}]", "url: /b\nrules: [{rpu: 10, name: login, algo: C, actor: ip}]",
			`rule "login": url / → /b, actor all → ip, algo TB → C, unit second → none, its counters begin anew`},
		{"url: /\nrules: [{rpu: 10, name: a}]", "url: /\nrules: [{rpu: 10, name: a}, {rpu: 10, name: x, actor: device}, {rpu: 4, name: z, algo: C}]",
			"rule \"x\" added: /, device, TB 10 per second\nrule \"z\" added: /, all, C 4 at once"},
		{"limits: []", "url: POST /a\nrules: [{rpu: 10, name: x, unit: 10s, burst: 5, actor: [ip, account], mode: shadow, scope: global, on_error: open}]",
			`rule "x" added: POST /a, ip+account, TB 10 per 10s, burst 5, scope global, on_error open, mode shadow`},
		{"limits: []", "url: /\nrules: [{rpu: 10, algo: LB}, {rpu: 10, algo: LB, queue: 0}]",
			"rule \"/ all LB 10/second\" added\nrule \"/ all LB 10/second #2\" added: queue 0"},
		{"url: /\nrules: [{rpu: 10, name: a}]", "url: /\nrules: [{rpu: 10, name: b}]", `rule "a": renamed "b", its counters begin anew`},
		{"url: /\nrules: [{rpu: 10, name: a}]", "url: /\nrules: [{rpu: 10}]", `rule "a": renamed "/ all TB 10/second", its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 10, name: a}]", `rule "/ all TB 10/second": renamed "a", its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 10, name: / all TB 10/second}]",
			`rule "/ all TB 10/second": renamed "/ all TB 10/second", its counters begin anew`},
		{"url: /\nrules: [{rpu: 10, name: a}, {rpu: 20, name: b}]", "url: /\nrules: [{rpu: 20, name: a}, {rpu: 10, name: b}]",
			"rule \"a\": rpu 10 → 20\nrule \"b\": rpu 20 → 10"},
		{"url: /\nrules: [{rpu: 10, name: a}]", "url: /\nrules: [{rpu: 5, mode: shadow}, {rpu: 10, name: a}]",
			`rule "/ all TB 5/second" added: mode shadow`},
		{"url: /\nrules: [{rpu: 10, algo: SW}]", "url: /\nrules: [{rpu: 10, algo: SW, slices: 10}]", ""},

		// whom a rule treats apart
		{"url: /\nrules: [{rpu: 10, name: a, actor: account}]",
			"url: /\nrules: [{rpu: 10, name: a, actor: account, except: [10.0.0.0/8, ann], overrides: {bob: {rpu: 5}, eve: {burst: 2}, sk_live_1234: {rpu: 0}}}]",
			`rule "a": for 10.0.0.0/8: none → excepted, for ann: none → excepted, for bob: none → rpu 5, for eve: none → rpu 10, burst 2, for ...1234: none → rpu 0`},
		{"url: /\nrules: [{rpu: 10, name: a, actor: account, except: [ann, '::1'], overrides: {bob: {rpu: 5}, 10.0.0.0/8: {rpu: 6}}}]",
			"url: /\nrules: [{rpu: 10, name: a, actor: account, except: ['::1'], overrides: {10.0.0.0/8: {rpu: 7}, ann: {rpu: 5}}}]",
			`rule "a": for 10.0.0.0/8: rpu 6 → rpu 7, for ann: excepted → rpu 5, for bob: rpu 5 → none`},
		{"url: /\nrules: [{rpu: 10, name: a, actor: account, overrides: {bob: {rpu: 5}}}]",
			"url: /\nrules: [{rpu: 10, name: a, actor: account, overrides: {bob: {rpu: 5, until: 2999-12-01T01:00:00+01:00}, eve: {exempt: true}}}]",
			`rule "a": for bob: rpu 5 → rpu 5, until 2999-12-01T00:00:00Z, for eve: none → exempt`},
		{"url: /\nrules: [{rpu: 10, actor: account, except: [ann, '::1'], overrides: {bob: {rpu: 5}, 10.0.0.0/8: {rpu: 6}}}]",
			"url: /\nrules: [{rpu: 10, actor: account, except: ['::1', ann], overrides: {10.0.0.0/8: {rpu: 6}, bob: {rpu: 5}}}]", ""},
		{"limits: []", "url: /\nrules: [{rpu: 10, name: x, algo: LB, except: [10.0.0.1], overrides: {10.0.0.2: {queue: 0}}}]",
			`rule "x" added: /, all, LB 10 per second, for 10.0.0.1: none → excepted, for 10.0.0.2: none → rpu 10, queue 0`},
		{"url: /\nrules: [{rpu: 10, name: a, except: [10.0.0.1]}]",
			"url: /\nrules: [{rpu: 10, name: a, except: [10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9, 10.0.1.0, 10.0.1.1, 10.0.1.2]}]",
			`rule "a": for 10.0.0.2: none → excepted, for 10.0.0.3: none → excepted, for 10.0.0.4: none → excepted, for 10.0.0.5: none → excepted, for 10.0.0.6: none → excepted, ` +
				`for 10.0.0.7: none → excepted, for 10.0.0.8: none → excepted, for 10.0.0.9: none → excepted, for 10.0.1.0: none → excepted, for 10.0.1.1: none → excepted, and 2 others`},
		{"url: /\nrules: [{rpu: 10, name: a}]", "url: /\nrules: [{rpu: 10, name: a, wait: 1.5s}, {rpu: 1, name: b, wait: 2m}]",
			"rule \"a\": wait none → 1.5s\nrule \"b\" added: /, all, TB 1 per second, wait 2m0s"},

		{"url: /\nrules: [{rpu: 1}]", "url: /\nrules: [{rpu: 1}]\ndivert: {body: busy}",
			`rule "/ all TB 1/second": divert none → 200 with a text of 4 bytes`},
		{"url: /\nrules: [{rpu: 1}]\ndivert: {body: busy}", "url: /\nrules: [{rpu: 1}]\ndivert: {body: free}",
			`rule "/ all TB 1/second": divert changed, in what is not shown`},
		{"url: /\nrules: [{rpu: 1}]\ndivert: {file: f, status: 503}", "url: /\nrules: [{rpu: 1}, {rpu: 2, name: n}]\ndivert: {upstream: 'http://h'}",
			"rule \"/ all TB 1/second\": divert 503 with f → to http://h\nrule \"n\" added: /, all, TB 2 per second, divert to http://h"},

		// rules without a name
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 20}]", `rule "/ all TB 10/second": rpu 10 → 20`},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 10, unit: minute, scope: global}]",
			`rule "/ all TB 10/second": unit second → minute, scope local → global, its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 10, scope: global}]",
			`rule "/ all TB 10/second": scope local → global, its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}, {rpu: 20}]", "url: /\nrules: [{rpu: 20}]",
			"rule \"/ all TB 20/second\": it takes over the counters of rule \"/ all TB 10/second\"\nrule \"/ all TB 10/second\" removed"},
		{"url: /\nrules: [{rpu: 10}, {rpu: 10, burst: 3}]", "url: /\nrules: [{rpu: 10, burst: 3}]",
			"rule \"/ all TB 10/second #2\": it takes over the counters of rule \"/ all TB 10/second\"\nrule \"/ all TB 10/second\" removed"},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 20, mode: shadow}, {rpu: 10}]",
			"rule \"/ all TB 20/second\" added: mode shadow, it takes over the counters of rule \"/ all TB 10/second\"\n" +
				`rule "/ all TB 10/second": its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}, {rpu: 20}]", "url: /\nrules: [{rpu: 20}, {rpu: 10}]",
			"rule \"/ all TB 20/second\": moved to the front, it takes over the counters of rule \"/ all TB 10/second\"\n" +
				`rule "/ all TB 10/second": it takes over the counters of rule "/ all TB 20/second"`},
		{"url: /\nrules: [{rpu: 10}, {rpu: 20, actor: ip}]", "url: /\nrules: [{rpu: 20, actor: ip}, {rpu: 10}]",
			`rule "/ ip TB 20/second": moved to the front`},
		{"url: /\nrules: [{rpu: 10, name: a, algo: SW}]", "url: /\nrules: [{rpu: 70000, name: a, algo: SW}]",
			`rule "a": rpu 10 → 70000, its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}, {rpu: 10, burst: 3}]", "url: /\nrules: [{rpu: 10, burst: 5}, {rpu: 20, burst: 7}]",
			"rule \"/ all TB 10/second\": burst rpu → 5\nrule \"/ all TB 10/second #2\": rpu 10 → 20, burst 3 → 7"},
		{"url: /\nrules: [{rpu: 10, name: a}, {rpu: 10, name: b, warmup: 0}]", "url: /\nrules: [{rpu: 10, name: a, warmup: 1m30s}, {rpu: 10, name: b}]",
			`rule "a": warmup 0s → 1m30s, its counters begin anew`},
		{"url: /\nrules: [{rpu: 10}]", "url: /\nrules: [{rpu: 10, algo: W}]",
			"rule \"/ all W 10/second\" added\nrule \"/ all TB 10/second\" removed"},
		{"url: /{a}\nrules: [{rpu: 10}]", "url: /{b}\nrules: [{rpu: 10}]", `rule "/{a} all TB 10/second": url /{a} → /{b}, its counters begin anew`},

		// order
		{"- {url: /a, rules: [{rpu: 1}]}\n- {url: /b, rules: [{rpu: 1}]}\n- {url: /c, rules: [{rpu: 1}]}",
			"- {url: /c, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 2}]}\n- {url: /b, rules: [{rpu: 1}]}",
			"entry /c moved to the front\nrule \"/a all TB 1/second\": rpu 1 → 2"},
		{"- {url: /a, rules: [{rpu: 1}]}\n- {url: /b, rules: [{rpu: 1}]}\n- {url: /c, rules: [{rpu: 1}]}",
			"- {url: /b, rules: [{rpu: 1}]}\n- {url: /x, rules: [{rpu: 1}]}\n- {url: /c, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 1}]}",
			"rule \"/x all TB 1/second\" added\nentry /a moved behind /c"},
		{"url: /\nrules: [{rpu: 1, name: a}, {rpu: 1, name: b}, {rpu: 1, name: c}]",
			"url: /\nrules: [{rpu: 1, name: b}, {rpu: 2, name: c}, {rpu: 3, name: a}]",
			"rule \"c\": rpu 1 → 2\nrule \"a\": rpu 1 → 3, moved behind \"c\""},
	} {
		old, now := parse(t, row.old), parse(t, row.now)
		if got := strings.Join(Configs(old, now), "\n"); got != row.want {
			t.Errorf("%s\n→ %s:\ngot\n%s\nwant\n%s", row.old, row.now, got, row.want)
		}
		for _, c := range []*config.Config{old, now} {
			if got := Configs(c, c); len(got) != 0 {
				t.Errorf("%s: differs from itself: %v", row.old, got)
			}
		}
		if text := fmt.Sprint(Configs(old, now), Configs(now, old)); strings.Contains(text, "s3cret") {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}

func TestChangesInOneLine(t *testing.T) {
	t.Parallel()
	var c Changes
	if got := c.String(); got != "no difference" {
		t.Error(got)
	}
	for i := range 12 {
		c = append(c, fmt.Sprint("change ", i))
	}
	c[1] = strings.Repeat("é", 500)
	want := "change 0; " + strings.Repeat("é", 200) + "...; change 2; change 3; change 4; change 5; change 6; change 7; change 8; change 9; and 2 more"
	if got := fmt.Sprint(c); got != want {
		t.Error(got)
	}
	c[11] = "rule a: " + strings.Repeat("x", 500) + ", its counters begin anew"
	want = "rule a: " + strings.Repeat("x", 192) + "..., its counters begin anew; change 0; " + strings.Repeat("é", 200) +
		"...; change 2; change 3; change 4; change 5; change 6; change 7; change 8; and 2 more"
	if got := fmt.Sprint(c); got != want || c[0] != "change 0" {
		t.Error(got)
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		out.Reset()
		slog.New(h).Info("configuration changed", "changes", c)
		if !strings.Contains(out.String(), want) {
			t.Error(out.String())
		}
	}
}

// secret returns a secret that is written out.
func secret(text string) config.Secret {
	var s config.Secret
	if err := s.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return s
}

// everything returns a configuration that says all that there is to say, in each value
// something else than the zero value if that can be.
func everything() *config.Config {
	text := secret
	return &config.Config{
		Redis: &config.Redis{
			URL: "redis://h", Cluster: []string{"h:1"}, Username: "u", Password: text("p"), Timeout: time.Second, Prefix: "d",
			Sentinel: &config.Sentinel{Master: "m", Addresses: []string{"h:1"}, Username: "u", Password: text("p")},
			TLS:      &config.TLS{CA: "ca", Certificate: "c", Key: "k", ServerName: "s"},
		},
		Remote: &config.Remote{
			URL: "etcd://h/k", Username: "u", Password: text("p"), Token: text("t"), Snapshot: "s",
			TLS: &config.TLS{CA: "ca", Certificate: "c", Key: "k", ServerName: "s"},
		},
		Identity: rule.Identity{
			Account: []rule.Actor{{Kind: "cookie", Name: "a"}}, Device: []rule.Actor{{Kind: "cookie", Name: "d"}},
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		},
		Credentials: config.Credentials{
			Keys:            &config.Keys{File: "f", Headers: []string{"X-Key"}},
			JWT:             []config.Issuer{{Keys: "k", Issuer: "i", Audience: "a", Algorithms: []string{"RS256"}, Stale: time.Hour}},
			UpstreamHeaders: map[string]config.Secret{"X-Own": text("o")},
		},
		Response: config.Response{Status: 503},
		MaxKeys:  1,
		Limits: []rule.Entry{{
			URL:    rule.Pattern{Method: "GET", Path: "/"},
			Divert: &rule.Divert{Status: 200, Type: "t/t", Body: "b", File: "f", Upstream: &url.URL{Host: "h"}, Values: map[string]any{"/v": "v"}},
			Rules: []rule.Rule{{
				Name: "n", Actor: []rule.Actor{{Kind: "cookie", Name: "r"}}, Algorithm: limit.TokenBucket(),
				Limit:     limit.Limit{N: 1, Unit: time.Second, Burst: 1, Queue: 1, Slices: 2, Min: 2},
				Except:    []rule.Who{{Value: "e", Network: netip.MustParsePrefix("10.0.0.0/8")}},
				Overrides: []rule.Override{{Who: rule.Who{Value: "o", Network: netip.MustParsePrefix("10.0.0.0/8")}, N: 1, Burst: 1, Queue: 1}},
				Class:     rule.Actor{Kind: "header", Name: "X"},
				Classes:   []rule.Override{{Who: rule.Who{Value: "c", Network: netip.MustParsePrefix("10.0.0.0/8")}, N: 1, Burst: 1, Queue: 1}},
				Charge:    []int{401},

				Measure: "end", Priority: rule.Actor{Kind: "header", Name: "X"}, Priorities: []string{"p"},
			}},
		}},
	}
}

// notConfigured are the fields that say nothing of what is configured, and why.
var notConfigured = map[string]string{
	"Source":           "where it was read",
	"Version":          "made of the text",
	"Warnings":         "made of the rest",
	"Limits.Bandwidth": "it is no rule's: see TestDiffBandwidths",
}

// No field can be changed, now or when it is added one day, without a difference.
func TestDiffKnowsAllFields(t *testing.T) {
	t.Parallel()
	unused := maps.Clone(notConfigured)
	tried := 0
	// try changes what at returns of a configuration.
	try := func(name string, at func(reflect.Value) reflect.Value, change func(reflect.Value)) {
		c := everything()
		change(at(reflect.ValueOf(c).Elem()))
		tried++
		d := Configs(everything(), c)
		if len(d) != 1 || !strings.Contains(d[0], "→") && !strings.Contains(d[0], "removed") && !strings.Contains(d[0], "renamed") && !strings.Contains(d[0], "changed") {
			t.Errorf("%s has changed: %q", name, []string(d))
		}
	}
	var walk func(name string, of reflect.Type, at func(reflect.Value) reflect.Value)
	walk = func(name string, of reflect.Type, at func(reflect.Value) reflect.Value) {
		if _, ok := notConfigured[name]; ok {
			delete(unused, name)
			return
		}
		switch of {
		case reflect.TypeFor[config.Secret]():
			try(name, at, func(v reflect.Value) { v.Set(reflect.ValueOf(secret("other"))) })
			try(name, at, reflect.Value.SetZero)
			return
		case reflect.TypeFor[netip.Prefix]():
			try(name, at, func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParsePrefix("11.0.0.0/8"))) })
			return
		case reflect.TypeFor[rule.Cost](): // whose fields mean nothing to one another
			for _, cost := range []rule.Cost{{N: 2}, {Header: "X"}, {Header: "X", Client: true}, {Answer: "openai"}} {
				try(name, at, func(v reflect.Value) { v.Set(reflect.ValueOf(cost)) })
			}
			return
		case reflect.TypeFor[url.URL]():
			try(name, at, func(v reflect.Value) { v.Set(reflect.ValueOf(url.URL{Host: "other"})) })
			return
		case reflect.TypeFor[limit.Algorithm]():
			try(name, at, func(v reflect.Value) { v.Set(reflect.ValueOf(limit.FixedWindow())) })
			return
		}
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				if f := of.Field(i); f.IsExported() {
					walk(strings.TrimPrefix(name+"."+f.Name, "."), f.Type, func(v reflect.Value) reflect.Value { return at(v).Field(i) })
				}
			}
		case reflect.Pointer:
			try(name, at, reflect.Value.SetZero)
			walk(name, of.Elem(), func(v reflect.Value) reflect.Value { return at(v).Elem() })
		case reflect.Slice:
			try(name, at, reflect.Value.SetZero)
			walk(name, of.Elem(), func(v reflect.Value) reflect.Value { return at(v).Index(0) })
		case reflect.Map:
			try(name, at, reflect.Value.SetZero)
			try(name, at, func(v reflect.Value) {
				for _, key := range v.MapKeys() {
					v.SetMapIndex(key, reflect.ValueOf(secret("other")))
				}
			})
		case reflect.String:
			try(name, at, func(v reflect.Value) { v.SetString(v.String() + "x") })
		case reflect.Int, reflect.Int64:
			try(name, at, func(v reflect.Value) { v.SetInt(v.Int() + 1) })
		case reflect.Bool:
			try(name, at, func(v reflect.Value) { v.SetBool(!v.Bool()) })
		default:
			t.Errorf("%s: cannot change a %v", name, of)
		}
	}
	walk("", reflect.TypeFor[config.Config](), func(v reflect.Value) reflect.Value { return v })
	if len(unused) > 0 {
		t.Errorf("there are no fields %v", slices.Collect(maps.Keys(unused)))
	}
	if tried < 50 {
		t.Errorf("only %d fields", tried)
	}
}

// The longest rise of random numbers is as long as that of all sequences there are, and
// does rise.
func TestLongestRise(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		numbers := random.Perm(random.IntN(9))
		want := 0
		for set := range 1 << len(numbers) {
			n, last := 0, -1
			for i, number := range numbers {
				if set>>i&1 == 1 {
					if number < last {
						n = -1
						break
					}
					n, last = n+1, number
				}
			}
			want = max(want, n)
		}
		got, last := 0, -1
		for i, rising := range longestRise(numbers) {
			if rising {
				if numbers[i] < last {
					t.Fatalf("%v: does not rise", numbers)
				}
				got, last = got+1, numbers[i]
			}
		}
		if got != want {
			t.Fatalf("%v: %d of them, want %d", numbers, got, want)
		}
	}
}

func TestDiffBandwidths(t *testing.T) {
	t.Parallel()
	read := func(text string) *config.Config {
		c, err := words().Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := read(`[{url: /a, bandwidth: 50k}, {url: /b, rules: [{rpu: 1}]}, {url: /c, bandwidth: {rate: 1m, actor: [ip, device]}}, {url: /same, bandwidth: 1001}]`)
	now := read(`[{url: /a/, bandwidth: {rate: 50000, actor: all}}, {url: /b, rules: [{rpu: 1}], bandwidth: 1m}, {url: /d, bandwidth: 1000000k}, {url: /same, bandwidth: 1001}]`)
	want := `entry /a: bandwidth 50k → 50k by all; entry /b: bandwidth none → 1m; entry /d: bandwidth none → 1000m; entry /c: bandwidth 1m by ip+device → none`
	if got := Configs(old, now).String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d := Configs(old, old); len(d) > 0 {
		t.Errorf("of the same: %s", d)
	}
}

// A configuration with ten thousand exceptions does not differ from itself.
func TestManyExceptions(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("url: /\nrules:\n  - actor: account\n    rpu: 10\n    overrides:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "      customer-%d: {rpu: %d}\n      10.%d.%d.0/24: {rpu: %d, burst: 50}\n", i, 20+i, i/250, i%250, 100+i%3)
	}
	c := parse(t, text.String())
	if d := Configs(c, c); len(d) != 0 {
		t.Errorf("differs from itself: %v", d)
	}
}
