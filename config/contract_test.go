// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// oneRule reads a configuration that has the one rule given.
func oneRule(t *testing.T, fields string) rule.Rule {
	t.Helper()
	c, err := words().Parse("x", []byte("url: /\nrules: [{"+fields+"}]"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Limits[0].Rules[0]
}

func describe(r rule.Rule) string {
	l, warmth := r.Limit, ""
	if l.Warmup > 0 {
		warmth = fmt.Sprint(" warmup ", l.Warmup)
	}
	return fmt.Sprintf("%q %v %v %d/%v %v %v %v burst %d queue %d slices %d %v%s",
		r.Name, r.Actor, r.Algorithm.Name(), l.N, l.Unit, r.Scope, r.OnError, r.Mode(), l.Burst, l.Queue, l.Slices, map[bool]string{false: "clock", true: "first"}[l.AlignFirst], warmth)
}

// The tables "A rule" and "Who is it?", row by row, the defaults first.
func TestRuleRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ fields, want string }{
		{`rpu: 5`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, name: a name`, `"a name" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, actor: all`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: account`, `"" [account] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: actor`, `"" [account] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: device`, `"" [device] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: ip`, `"" [ip] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: header:x-key`, `"" [header:X-Key] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: cookie:sid`, `"" [cookie:sid] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: query:key`, `"" [query:key] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: [ip, account]`, `"" [ip account] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, actor: [ip, account, query:key]`, `"" [ip account query:key] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, algo: LB, queue: 0`, `"" [all] LB 5/1s local share enforce burst 0 queue -1 slices 0 clock`},
		{`rpu: 5, unit: second`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: minute`, `"" [all] TB 5/1m0s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: hour`, `"" [all] TB 5/1h0m0s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: day`, `"" [all] TB 5/24h0m0s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: 10s`, `"" [all] TB 5/10s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: 1ms`, `"" [all] TB 5/1ms local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, unit: 744h`, `"" [all] TB 5/744h0m0s local share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, warmup: 90s`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock warmup 1m30s`},
		{`rpu: 5, warmup: 10m`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock warmup 10m0s`},
		{`rpu: 5, warmup: 0`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 0`, `"" [all] TB 0/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 1000000000`, `"" [all] TB 1000000000/1s local share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, scope: local`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, scope: global`, `"" [all] TB 5/1s global share enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, burst: 1`, `"" [all] TB 5/1s local share enforce burst 1 queue 0 slices 0 clock`},
		{`rpu: 5, algo: LB, queue: 1`, `"" [all] LB 5/1s local share enforce burst 0 queue 1 slices 0 clock`},
		{`rpu: 5, algo: SW, slices: 2`, `"" [all] SW 5/1s local share enforce burst 0 queue 0 slices 2 clock`},
		{`rpu: 5, algo: SW, slices: 100`, `"" [all] SW 5/1s local share enforce burst 0 queue 0 slices 100 clock`},
		{`rpu: 5, algo: W, align: clock`, `"" [all] W 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, algo: W, align: first`, `"" [all] W 5/1s local share enforce burst 0 queue 0 slices 0 first`},

		{`rpu: 5, scope: global, on_error: share`, `"" [all] TB 5/1s global share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, scope: global, on_error: local`, `"" [all] TB 5/1s global local enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, scope: global, on_error: open`, `"" [all] TB 5/1s global open enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, scope: global, on_error: closed`, `"" [all] TB 5/1s global closed enforce burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, mode: enforce`, `"" [all] TB 5/1s local share enforce burst 0 queue 0 slices 0 clock`},
		{`rpu: 5, mode: shadow`, `"" [all] TB 5/1s local share shadow burst 0 queue 0 slices 0 clock`},

		{`rpu: 5, algo: C`, `"" [all] C 5/0s local share enforce burst 0 queue 0 slices 0 clock`},
	} {
		if got := describe(oneRule(t, row.fields)); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.fields, got, row.want)
		}
	}
}

// What a request costs, and by which answers it counts.
func TestPriceRows(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`rpu: 5`:                                   "1 []",
		`rpu: 5, cost: 1`:                          "1 []",
		`rpu: 5, cost: 5`:                          "5 []",
		`rpu: 5, burst: 1000000, cost: 1000000`:    "1000000 []",
		`rpu: 0, cost: 5`:                          "5 []",
		`rpu: 5, algo: C, cost: 5`:                 "5 []",
		`rpu: 5, algo: LB, cost: 50`:               "50 []",
		`rpu: 5, cost: header:x-cost`:              "header:X-Cost []",
		`rpu: 5, cost: 'client:X-Cost'`:            "client:X-Cost []",
		`rpu: 5, charge: [401]`:                    "1 [401]",
		`rpu: 5, charge: [599, 100]`:               "1 [599 100]",
		`rpu: 5, algo: W, charge: [401, 403]`:      "1 [401 403]",
		`rpu: 5, algo: SW, charge: [401], cost: 2`: "2 [401]",
		`rpu: 5, algo: SL, charge: [401]`:          "1 [401]",
	} {
		r := oneRule(t, fields)
		if got := fmt.Sprint(r.Cost, " ", r.Charge); got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
}

// How fast answers may be. An entry that says so needs no rules.
func TestBandwidthRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"50k":                               "50k",
		"1k":                                "1k",
		"1000":                              "1k",
		"1234":                              "1234",
		"1000m":                             "1000m",
		"1000000k":                          "1000m",
		"1000000000":                        "1000m",
		"'2m'":                              "2m",
		"{rate: 50k}":                       "50k",
		"{rate: 50k, actor: device}":        "50k by device",
		"{rate: 50k, actor: all}":           "50k by all",
		"{rate: 5000, actor: [ip, device]}": "5k by ip+device",
	} {
		for _, rules := range []string{"", ", rules: [{rpu: 1}]"} {
			c, err := words().Parse("x", []byte("{url: /, bandwidth: "+text+rules+"}"))
			if err != nil {
				t.Error(err)
				continue
			}
			if got := c.Limits[0].Bandwidth.String(); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

// Each algorithm has two names, whose letter case does not matter.
func TestAlgorithmNames(t *testing.T) {
	t.Parallel()
	for short, long := range map[string]string{
		"TB": "token bucket", "W": "window", "SW": "sliding window",
		"SL": "sliding log", "LB": "leaky bucket", "C": "concurrency",
	} {
		for _, name := range []string{short, strings.ToLower(short), long, strings.ToUpper(long), strings.ToUpper(long[:1]) + long[1:]} {
			if got := oneRule(t, "rpu: 1, algo: "+name).Algorithm.Name(); got != short {
				t.Errorf("%s is %s, want %s", name, got, short)
			}
		}
	}
}

// What a key says when it is not given shows in the meter that is made of the rule.
func TestAlgorithmDefaults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fields    string
		remaining int64
		layout    string
	}{
		{`rpu: 7`, 7, ""},           // burst is rpu
		{`rpu: 7, burst: 3`, 3, ""}, // and it is the capacity
		{`rpu: 7, algo: LB`, 8, ""}, // queue is rpu, and one goes at once
		{`rpu: 7, algo: LB, queue: 3`, 4, ""},
		{`rpu: 60, unit: minute, algo: LB`, 11, ""}, // never over 10 s
		{`rpu: 7, algo: SW`, 7, "10x16"},            // 10 slices
		{`rpu: 7, algo: SW, slices: 3`, 7, "3x16"},
		{`rpu: 7, algo: W`, 7, "1"}, // align is clock
		{`rpu: 7, algo: W, align: first`, 7, "first"},
	} {
		r := oneRule(t, row.fields)
		m, err := r.Algorithm.New(r.Limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Peek(limit.State{}, 1e15, 1).Remaining; got != row.remaining {
			t.Errorf("%s: %d remaining, want %d", row.fields, got, row.remaining)
		}
		if row.layout != "" && m.StateVersion() != row.layout {
			t.Errorf("%s: layout %s, want %s", row.fields, m.StateVersion(), row.layout)
		}
	}
}

// The table "An entry", and the forms that entries come in.
func TestEntryRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"url: /\nrules: [{rpu: 1}]", "/ 1"},
		{"Url: /\nrules: [{rpu: 1}, {rpu: 2}]", "/ 1 2"},
		{"url: /a/b/\nrules: [{rpu: 1}]", "/a/b 1"},
		{"url: /a/{b}\nrules: [{rpu: 1}]", "/a/{b} 1"},
		{"url: POST /a\nrules: [{rpu: 1}]", "POST /a 1"},
		{"- url: /\n  rules: [{rpu: 1}]\n- Url: /b\n  rules: [{rpu: 2}]", "/ 1; /b 2"},
		{"url: /\nrules: [{rpu: 1}]\n---\n- Url: /b\n  rules: [{rpu: 2}]", "/ 1; /b 2"},
		{"limits:\n- url: /\n  rules: [{rpu: 1}]\n- Url: /b\n  rules: [{rpu: 2}]", "/ 1; /b 2"},
	} {
		for form, parse := range map[string]func(string, []byte) (*Config, error){"local": words().Parse, "remote": words().ParseRemote} {
			c, err := parse("x", []byte(row.text))
			if err != nil {
				t.Errorf("%s: %v", form, err)
				continue
			}
			var entries []string
			for _, e := range c.Limits {
				text := e.URL.String()
				for _, r := range e.Rules {
					text += fmt.Sprint(" ", r.Limit.N)
				}
				entries = append(entries, text)
			}
			if got := strings.Join(entries, "; "); got != row.want {
				t.Errorf("%s, %q: %s, want %s", form, row.text, got, row.want)
			}
		}
	}
}

// The settings of the full form, as they are by default and as they are given.
func TestSettingRows(t *testing.T) {
	t.Parallel()
	const limits = "limits: [{url: /, rules: [{rpu: 1}]}]\n"
	identity := func(c *Config) any { return c.Identity }
	response := func(c *Config) any {
		return struct {
			Status  int
			Headers bool
		}{c.Response.Status, !c.Response.OmitHeaders}
	}
	redis := func(c *Config) any {
		r := c.Redis
		switch {
		case r == nil:
			return r
		case r.Sentinel != nil:
			return []any{r.Sentinel.Master, r.Sentinel.Addresses, r.Timeout, r.Prefix}
		}
		return []any{r.URL, r.Cluster, r.Timeout, r.Prefix}
	}
	access := func(c *Config) any {
		r := c.Redis
		if r.Sentinel != nil {
			return []any{r.Username, r.Password, r.Sentinel.Username, r.Sentinel.Password, fmt.Sprint(r.TLS)}
		}
		return []any{r.Username, r.Password, fmt.Sprint(r.TLS)}
	}
	remote := func(c *Config) any {
		r := c.Remote
		return []any{r.URL, r.Username, r.Password, r.Token, fmt.Sprint(r.TLS), r.Snapshot}
	}
	for _, row := range []struct {
		text string
		part func(*Config) any
		want string
	}{
		{"", redis, "<nil>"},
		{"", func(c *Config) any { return c.Remote }, "<nil>"},
		{"", identity, "{[header:X-Account-Id] [header:X-Device-Id] []}"},
		{"", response, "{503 true}"},
		{"", func(c *Config) any { return c.MaxKeys }, "1000000"},

		{"redis: {url: 'redis://127.0.0.1:6379/0'}", redis, "[redis://127.0.0.1:6379/0 [] 50ms diana]"},
		{"redis: {url: 'rediss://u:p@h', timeout: 1ms, prefix: p}", redis, "[rediss://u:p@h [] 1ms p]"},
		{"redis: {cluster: ['a:1', 'b:2'], timeout: 10s}", redis, "[ [a:1 b:2] 10s diana]"},
		{"redis: {sentinel: {master: m, addresses: ['a:1']}}", redis, "[m [a:1] 50ms diana]"},
		{"redis: {cluster: ['a:1']}", access, "[  <nil>]"},
		{"redis: {cluster: ['a:1'], password: p}", access, "[ (hidden) <nil>]"},
		{"redis: {cluster: ['a:1'], username: u, password: env:P, tls: {}}", access, "[u env:P &{   }]"},
		{"redis: {url: 'redis://a/1', username: u, password: file:/p}", access, "[u file:/p <nil>]"},
		{"redis: {url: 'rediss://a', tls: {ca: a, certificate: b, key: c, server_name: d}}", access, "[  &{a b c d}]"},
		{"redis: {sentinel: {master: m, addresses: ['a:1'], password: env:P}, tls: {server_name: '::1'}}", access, "[   env:P &{   ::1}]"},
		{"redis: {sentinel: {master: m, addresses: ['a:1'], username: s, password: p}, username: u, password: env:P}", access, "[u env:P s (hidden) <nil>]"},
		{"remote: {url: 'consul://h/k', snapshot: s}", remote, "[consul://h/k    <nil> s]"},
		{"remote: {url: 'https://h'}", remote, "[https://h    <nil> ]"},
		{"remote: {url: 'redis://h/0/a/b', username: u, password: p}", remote, "[redis://h/0/a/b u (hidden)  <nil> ]"},
		{"remote: {url: 'consul://h/k', token: env:T, tls: {}}", remote, "[consul://h/k   env:T &{   } ]"},
		{"identity: {account: [cookie:a, ip]}", identity, "{[cookie:a ip] [header:X-Device-Id] []}"},
		{"identity: {device: [query:b], account: []}", identity, "{[] [query:b] []}"},
		{"identity: {trusted_proxies: [127.0.0.0/8, 10.0.0.7/8, 192.0.2.1, '::1', '::ffff:10.0.0.0/104']}", identity,
			"{[header:X-Account-Id] [header:X-Device-Id] [127.0.0.0/8 10.0.0.0/8 192.0.2.1/32 ::1/128 10.0.0.0/8]}"},
		{"response: {status: 429}", response, "{429 true}"},
		{"response: {status: 400, headers: false}", response, "{400 false}"},
		{"response: {status: 599}", response, "{599 true}"},
		{"", func(c *Config) any { return c.Paths }, "{false false}"},
		{"paths: {strange: judge}", func(c *Config) any { return c.Paths }, "{true false}"},
		{"paths: {strange: refuse, case: exact}", func(c *Config) any { return c.Paths }, "{false true}"},
		{"max_keys: 1", func(c *Config) any { return c.MaxKeys }, "1"},
		{"max_keys: 100000000", func(c *Config) any { return c.MaxKeys }, "100000000"},
	} {
		c, err := words().Parse("x", []byte(limits+row.text))
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
			continue
		}
		if got := fmt.Sprint(row.part(c)); got != row.want {
			t.Errorf("%q: %s, want %s", row.text, got, row.want)
		}
	}
}
