// SPDX-License-Identifier: MIT

package diff

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bytesize"
)

// A setting is a key with its value, or a section with keys of its own.
type setting struct {
	key   string
	shown string // the value in messages; empty means not given
	is    string // equal for equal values; never shown, because a URL can contain a password
	below []setting

	secret any // of a setting that has secrets
}

// same reports whether two settings with the same key say the same.
func (s setting) same(other setting) bool {
	return s.is == other.is && reflect.DeepEqual(s.secret, other.secret)
}

func plainSetting(key, text string) setting {
	return setting{key: key, shown: legible(text), is: text}
}

func listSetting(key string, list []string) setting {
	return setting{key: key, shown: legible(strings.Join(list, ", ")), is: fmt.Sprintf("%q", list)}
}

func texts[T fmt.Stringer](list []T) []string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = item.String()
	}
	return texts
}

func urlSetting(key, url, shown string) setting {
	return setting{key: key, shown: legible(shown), is: url}
}

func secretSetting(key string, s config.Secret) setting {
	return setting{key: key, shown: legible(s.String()), secret: s}
}

// section returns a setting with others below it. The settings of a missing section are zero values.
func section(key string, given bool, below ...setting) setting {
	s := setting{key: key, below: below}
	if given {
		s.shown, s.is = "{}", "given"
	}
	return s
}

// or returns the value that p points to, or the zero value.
func or[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// settingsOf returns all settings, always the same keys in the same order.
func settingsOf(c *config.Config) []setting {
	redis, remote := or(c.Redis), or(c.Remote)
	sentinel, keys := or(redis.Sentinel), or(c.Credentials.Keys)
	tags := ""
	if redis.Tags != 0 && redis.Tags != 32 { // most configurations have the default and need no mention of it
		tags = strconv.Itoa(redis.Tags)
	}
	return []setting{
		section("redis", c.Redis != nil,
			urlSetting("url", redis.URL, redis.Where()),
			listSetting("cluster", redis.Cluster),
			section("sentinel", redis.Sentinel != nil,
				plainSetting("master", sentinel.Master),
				listSetting("addresses", sentinel.Addresses),
				plainSetting("username", sentinel.Username),
				secretSetting("password", sentinel.Password),
			),
			plainSetting("username", redis.Username),
			secretSetting("password", redis.Password),
			tlsSetting(redis.TLS),
			plainSetting("timeout", redis.Timeout.String()),
			plainSetting("prefix", redis.Prefix),
			plainSetting("remember", bytesize.String(redis.Remember)),
			plainSetting("tags", tags),
		),
		section("remote", c.Remote != nil,
			urlSetting("url", remote.URL, remote.Where()),
			plainSetting("username", remote.Username),
			secretSetting("password", remote.Password),
			secretSetting("token", remote.Token),
			tlsSetting(remote.TLS),
			plainSetting("snapshot", remote.Snapshot),
		),
		section("identity", true,
			listSetting("account", texts(c.Identity.Account)),
			listSetting("device", texts(c.Identity.Device)),
			plainSetting("required", wordOf(c.Credentials.Required, "none", "any")),
			section("keys", c.Credentials.Keys != nil, plainSetting("file", keys.File), listSetting("headers", keys.Headers)),
			listSetting("jwt", issuers(c)),
			upstreamHeaders(c.Credentials.UpstreamHeaders),
			listSetting("trusted_proxies", texts(c.Identity.TrustedProxies)),
		),
		section("paths", true,
			plainSetting("strange", wordOf(c.Paths.JudgeStrange, "refuse", "judge")),
			plainSetting("case", wordOf(c.Paths.ExactCase, "fold", "exact")),
		),
		section("response", true,
			plainSetting("status", strconv.Itoa(c.Response.Status)),
			plainSetting("headers", strconv.FormatBool(!c.Response.OmitHeaders)),
		),
		plainSetting("max_keys", strconv.Itoa(c.MaxKeys)),
	}
}

// issuers returns each issuer of tokens with all that it has.
func issuers(c *config.Config) (list []string) {
	for _, i := range c.Credentials.JWT {
		list = append(list, fmt.Sprintf("%s for %s by %s of %s, stale %v", i.Issuer, i.Audience, strings.Join(i.Algorithms, " "), i.Keys, i.Stale))
	}
	return list
}

// upstreamHeaders shows each header with the place of its value.
func upstreamHeaders(values map[string]config.Secret) setting {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+": "+values[name].String())
	}
	made := listSetting("upstream_headers", list)
	made.secret = values
	return made
}

func tlsSetting(t *config.TLS) setting {
	files := or(t)
	return section("tls", t != nil,
		plainSetting("ca", files.CA),
		plainSetting("certificate", files.Certificate),
		plainSetting("key", files.Key),
		plainSetting("server_name", files.ServerName),
	)
}

// changes returns the changes from was to now, which have the same key.
func (was setting) changes(now setting, path string) (c []string) {
	key := path + was.key
	switch {
	case was.below != nil && was.same(now):
		for i := range was.below {
			c = append(c, was.below[i].changes(now.below[i], key+".")...)
		}
	case was.same(now):
	case was.below != nil && was.shown == "":
		c = append(c, key+" added: "+now.summary())
	case was.below != nil:
		c = append(c, key+" removed")
	case was.shown == now.shown:
		c = append(c, key+" changed, in what is not shown")
	default:
		c = append(c, fmt.Sprintf("%s %s → %s", key, cmp.Or(was.shown, "none"), cmp.Or(now.shown, "none")))
	}
	return c
}

// summary returns the settings in a section.
func (s setting) summary() string {
	var parts []string
	for _, b := range s.below {
		switch {
		case b.shown == "":
		case b.below != nil:
			parts = append(parts, b.key+" ("+b.summary()+")")
		default:
			parts = append(parts, b.key+" "+b.shown)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), s.shown)
}
