// SPDX-License-Identifier: MIT

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Check finds every value that Parse would have rejected.
func TestCheck(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config, *rule.Rule){
		"": func(*Config, *rule.Rule) {},
		"max_keys is -1, expected 1 to 100000000":                    func(c *Config, _ *rule.Rule) { c.MaxKeys = -1 },
		"response.status is 200, expected 400 to 599":                func(c *Config, _ *rule.Rule) { c.Response.Status = 200 },
		"redis has 0 of URL, Cluster and Sentinel":                   func(c *Config, _ *rule.Rule) { c.Redis = &Redis{} },
		"redis has 2 of URL, Cluster and Sentinel":                   func(c *Config, _ *rule.Rule) { c.Redis = &Redis{URL: "redis://a", Cluster: []string{"b:1"}} },
		"redis.sentinel has no master or no addresses":               func(c *Config, _ *rule.Rule) { c.Redis = &Redis{Sentinel: &Sentinel{}} },
		"redis.timeout is -1ns, expected 1ms to 10s":                 func(c *Config, _ *rule.Rule) { c.Redis = &Redis{URL: "redis://a", Timeout: -1} },
		`redis.prefix is "a b{", expected`:                           func(c *Config, _ *rule.Rule) { c.Redis = &Redis{URL: "redis://a", Prefix: "a b{"} },
		`url "get /": "get" is not a method, expected capitals`:      func(c *Config, _ *rule.Rule) { c.Limits[0].URL.Method = "get" },
		`url "/x//y/../z/": expected the pattern in its clean form`:  func(c *Config, _ *rule.Rule) { c.Limits[0].URL.Path = "/x//y/../z/" },
		"divert has 0 of Body, Values, File and Upstream":            func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{} },
		"divert has 2 of Body, Values, File and Upstream":            func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Body: "a", File: "b"} },
		`divert.body has "model", expected a JSON pointer`:           func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Values: map[string]any{"model": "a"}} },
		`divert.body has a float64 at "/a", expected a string`:       func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Values: map[string]any{"/a": 1.5}} },
		`divert.body is empty, expected at least one`:                func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Values: map[string]any{}} },
		"divert.status is 7, expected 200 to 599":                    func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Body: "a", Status: 7} },
		"divert.status is 204, expected a status whose":              func(c *Config, _ *rule.Rule) { c.Limits[0].Divert = &rule.Divert{Body: "a", Status: 204} },
		`rule "r": on_error is 77, expected Share, Whole`:            func(_ *Config, r *rule.Rule) { r.OnError = 77 },
		`rule "r": cost is -5, expected 1 to 1000000`:                func(_ *Config, r *rule.Rule) { r.Cost.N = -5 },
		`rule "r": charge is 7777, expected 100 to 599`:              func(_ *Config, r *rule.Rule) { r.Charge = []int{200, 7777} },
		`rule "r": the algorithm has no name or no New, expected bo`: func(_ *Config, r *rule.Rule) { r.Algorithm = limit.Algorithm{New: limit.TokenBucket().New} },
	} {
		c := &Config{Limits: []rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{{Name: "r", Limit: limit.Limit{N: 1, Unit: time.Second}}}}}}
		change(c, &c.Limits[0].Rules[0])
		err := c.Filled(DefaultVocabulary()).Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Check accepts the urls that Parse has decoded.
func TestCheckDecodedURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"/a%20b", "POST /a%20", "/a%3Fb%23c", "/a%2Fb", "/a%2520b"} {
		c, err := Parse("test.yaml", []byte(`{url: "`+url+`", rules: [{rpu: 1}]}`))
		if err == nil {
			err = c.Check()
		}
		if err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
