// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/bytesize"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
)

// Bounds of settings.
const (
	maxMaxKeys     = 100_000_000
	mostWeight     = 1_000_000 // of a token
	longestPrefix  = 128       // bytes
	longestAddress = 2048
	longestPath    = 4096
	longestUser    = 256
	longestHost    = 253
)

// isFull reports whether a document has the full form. It has if one of its keys belongs to that form,
// or if a misspelled key does and no key belongs to an entry.
func isFull(v value) bool {
	entry, near := false, false
	for n := range v.pairs {
		key := n.Value
		if fullKeys.index(key) >= 0 {
			return true
		}
		entry = entry || entryKeys.index(key) >= 0
		near = near || yamltext.Nearest(key, fullKeys.names()) != ""
	}
	return near && !entry
}

// readSettings reads settings and limits. It reads remote before limits, because a file with a remote
// needs no limits of its own.
func readSettings(v value) {
	v.form = fullKeys
	m := v.mapping()
	if v.r.remote {
		for _, key := range fullKeys.names() {
			if key != "limits" && m.get(key).given() {
				m.failKey(key, "%s has no meaning here, expected limits alone; settings come from the local file", key)
			}
		}
		if l := m.get("limits"); l.given() {
			readEntries(l)
		} else {
			m.fail("%s lacks limits", m.known.of)
		}
		return
	}
	c := v.r.config
	for _, key := range fullKeys.names() {
		c.settings = c.settings || key != "limits" && m.get(key).given()
	}
	c.Redis = readRedis(m.get("redis"))
	c.Remote = readRemote(m.get("remote"))
	identity := m.get("identity").mapping()
	c.Credentials = readCredentialSettings(identity)
	c.Identity = readIdentity(identity)
	c.Paths = readPaths(m.get("paths"))
	c.Response = readResponse(m.get("response"))
	c.MaxKeys = int(m.get("max_keys").whole())
	if l := m.get("limits"); l.given() {
		readEntries(l)
	} else if c.Remote == nil {
		v.r.warn(v.node, "there are neither limits nor a remote, so nothing is limited")
	}
}

func readRedis(v value) *Redis {
	if !v.given() {
		return nil
	}
	m := v.mapping()
	first := ""
	for _, way := range redisWays {
		switch {
		case !m.get(way).given():
		case first == "":
			first = way
		default:
			m.failKey(way, "redis has %s and %s, expected one of url, cluster and sentinel", first, way)
		}
	}
	if first == "" && m.fields != nil {
		m.fail("redis lacks an address, expected one of url, cluster and sentinel")
	}
	text, u := readRedisURL(m.get("url"))
	if u != nil {
		checkURL(m, u, u.Scheme == "redis")
	}
	username, password := readCredentials(m)
	return &Redis{
		URL:      text,
		Cluster:  readHosts(m.get("cluster")),
		Sentinel: readSentinel(m.get("sentinel")),
		Username: username,
		Password: password,
		TLS:      readTLS(m.get("tls")),
		Timeout:  m.get("timeout").duration(),
		Prefix:   readPrefix(m.get("prefix")),
		Remember: readSize(m.get("remember")),
		Tags:     int(m.get("tags").whole()),
	}
}

// checkURL reports keys that contradict or repeat a part of the URL. plain says that the scheme of the
// URL means no TLS.
func checkURL(m mapping, u *url.URL, plain bool) {
	for _, key := range []string{"username", "password"} {
		if u.User != nil && m.get(key).given() {
			m.failKey(key, "%s has credentials in the url and a %s, expected them in one place", m.known.of, key)
		}
	}
	if plain && m.get("tls").given() {
		m.failKey("tls", "%s has tls and a url of %s://, expected %ss:// for TLS", m.known.of, u.Scheme, u.Scheme)
	}
}

func readSentinel(v value) *Sentinel {
	if !v.given() {
		return nil
	}
	m := v.mapping()
	master, _ := m.get("master").text()
	username, password := readCredentials(m)
	return &Sentinel{Master: master, Addresses: readHosts(m.get("addresses")), Username: username, Password: password}
}

// readHosts reads a list of host:port.
func readHosts(v value) []string {
	var hosts []string
	seen := map[string]bool{}
	for item := range v.list {
		text, ok := item.text()
		if !ok {
			continue
		}
		host, port, err := net.SplitHostPort(text)
		switch {
		case err != nil || host == "" || !isPort(port) || strings.ContainsAny(text, " /@"):
			item.expected("host:port")
		case seen[text]:
			item.fail("%s: expected each once, found %s again", item.key, yamltext.Quote(text))
		}
		seen[text] = true
		hosts = append(hosts, text)
	}
	return hosts
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func readPrefix(v value) string {
	if !v.given() {
		return prefixForm.otherwise
	}
	text, ok := v.text()
	if ok && strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }) {
		v.expected("printable ASCII without spaces and braces")
	}
	return text
}

// readURL reads a URL. No message shows the URL, because it may contain a password.
func readURL(v value) (text string, u *url.URL) {
	text, ok := v.text()
	if !ok {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Port() != "" && !isPort(u.Port()) {
		v.fail("%s: expected a URL such as redis://127.0.0.1:6379/0, this cannot be read as one", v.key)
		return "", nil
	}
	return text, u
}

func readRedisURL(v value) (text string, u *url.URL) {
	text, u = readURL(v)
	switch {
	case u == nil:
	case u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "":
		v.fail("%s: expected redis://HOST:PORT/DB, or rediss:// for TLS", v.key)
	case strings.Trim(u.Path, "/") != "" && !isDatabase(strings.TrimPrefix(u.Path, "/")):
		v.fail("%s: expected the number of a database behind the host, such as /0", v.key)
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		v.fail("%s: expected no options behind ? or #", v.key)
	}
	return text, u
}

func isDatabase(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == s
}

func readIdentity(m mapping) rule.Identity {
	id := rule.Identity{Account: readSources(m.get("account")), Device: readSources(m.get("device"))}
	for item := range m.get("trusted_proxies").list {
		id.TrustedProxies = append(id.TrustedProxies, readNetwork(item))
	}
	return id
}

// readSources reads the sources of account or device. Its result is nil if they are not given, and not
// nil if the list is empty: then the client's address counts.
func readSources(v value) []rule.Actor {
	if !v.given() {
		return nil
	}
	return append([]rule.Actor{}, distinctActors(v.list, func(item value, a rule.Actor) string {
		return fmt.Sprintf("%s: expected a source such as header:X-Account-Id, found %s", item.key, a.Kind)
	})...)
}

// readNetwork reads a CIDR or a single address. It turns IPv4 that is written as IPv6 into IPv4, because
// Diana compares it with IPv4 addresses.
func readNetwork(v value) netip.Prefix {
	text, ok := v.text()
	if !ok {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(text)
	if ip, ipErr := netip.ParseAddr(text); ipErr == nil && ip.Zone() == "" {
		p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	if err != nil {
		v.expected("a network such as 10.0.0.0/8, or an address")
		return p
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Bits() == 0 {
		v.r.warn(v.node, "%s: this trusts everyone, so any client can claim any address", v.key)
	}
	return p.Masked()
}

func readPaths(v value) rule.Paths {
	m := v.mapping()
	return rule.Paths{JudgeStrange: m.get("strange").choice() == 1, ExactCase: m.get("case").choice() == 1}
}

func readResponse(v value) Response {
	m := v.mapping()
	return Response{Status: int(m.get("status").whole()), OmitHeaders: !m.get("headers").truth()}
}

// readSize reads a size of memory. It returns 0 if there is none, and -1 for 0.
func readSize(v value) int64 {
	if !v.given() {
		return 0
	}
	n, ok := bytesize.Parse(v.node.Value)
	if !ok || !v.scalar() {
		v.expected("a size such as 16MiB, at most " + bytesize.String(bytesize.Max) + ", or 0 for none")
	}
	return cmp.Or(n, -1)
}
