// SPDX-License-Identifier: MIT

package plan

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

func identity(t testing.TB) rule.Identity {
	t.Helper()
	parse := func(texts ...string) (list []rule.Actor) {
		for _, text := range texts {
			a := parseActor(text)
			list = append(list, a)
		}
		return list
	}
	return rule.Identity{
		Account:        parse("header:x-account-id", "cookie:account"),
		Device:         parse("header:X-Device-Id"),
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
	}
}

// key returns the key of a request under a rule for these actors.
func key(t testing.TB, r *rule.Request, names ...string) string {
	t.Helper()
	declared := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
	for _, text := range names {
		a := parseActor(text)
		declared.Actor = append(declared.Actor, a)
	}
	s, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{declared}}}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return explain(t, s, r)[0].Key
}

func request(headers ...string) *rule.Request {
	r := httptest.NewRequest("GET", "/x?key=k%20y", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return &rule.Request{Method: "GET", Path: "/x", HTTP: r}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", 257)
	for _, tc := range []struct {
		name    string
		request *rule.Request
		actors  []string
		want    string
	}{
		{"all", request(), []string{"all"}, ""},
		{"ip", request(), []string{"ip"}, "ip=192.0.2.1;"},
		{"account by header", request("X-Account-Id", "ann"), []string{"account"}, "header:X-Account-Id=3:ann;"},
		{"account by cookie", request("Cookie", "account=bob; x=y"), []string{"account"}, "cookie:account=3:bob;"},
		{"account: header goes first", request("Cookie", "account=bob", "X-Account-Id", "ann"), []string{"actor"}, "header:X-Account-Id=3:ann;"},
		{"account by ip", request(), []string{"account"}, "ip=192.0.2.1;"},
		{"device", request("X-Device-Id", "d"), []string{"device"}, "header:X-Device-Id=1:d;"},
		{"device by ip", request("X-Device-Id", ""), []string{"device"}, "ip=192.0.2.1;"},
		{"header", request("X-Key", "k"), []string{"header:x-key"}, "header:X-Key=1:k;"},
		{"header by ip", request(), []string{"header:x-key"}, "ip=192.0.2.1;"},
		{"host", request(), []string{"header:host"}, "header:Host=11:example.com;"},
		{"host as an actor", request(), []string{"host"}, "host=11:example.com;"},
		{"host and address", request(), []string{"host", "ip"}, "host=11:example.com;ip=192.0.2.1;"},
		{"no host", &rule.Request{}, []string{"host"}, "ip=none;"},
		{"cookie", request("Cookie", "s=1"), []string{"cookie:s"}, "cookie:s=1:1;"},
		{"query", request(), []string{"query:key"}, "query:key=3:k y;"},
		{"query by ip", request(), []string{"query:none"}, "ip=192.0.2.1;"},
		{"two", request("X-Device-Id", "d"), []string{"device", "ip"}, "header:X-Device-Id=1:d;ip=192.0.2.1;"},
		{"long", request("X-Key", long), []string{"header:x-key"}, "sha256"},
		{"known to the caller", &rule.Request{Actors: map[string]string{"account": "ann"}}, []string{"account"}, "account=3:ann;"},
		{"a source known to the caller", &rule.Request{Actors: map[string]string{"header:X-Device-Id": "d"}}, []string{"device"}, "header:X-Device-Id=1:d;"},
		{"address known to the caller", &rule.Request{Actors: map[string]string{"ip": "::ffff:192.0.2.9"}}, []string{"ip"}, "ip=192.0.2.9;"},
		{"nothing known", &rule.Request{}, []string{"device"}, "ip=none;"},
	} {
		got := key(t, tc.request, tc.actors...)
		if tc.name == "long" { // the digest itself is not the point
			if !strings.HasPrefix(got, "header:X-Key=sha256:") || len(got) != len("header:X-Key=sha256:;")+64 {
				t.Errorf("long: %q", got)
			}
			continue
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Different actors have different keys, whatever they put into their names.
func TestKeysNeverMeet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	seen := map[string]string{}
	for _, r := range []struct{ a, b string }{
		{"a:b", "c"}, {"a", "b:c"}, {"a;", "b"}, {"a", ";b"}, {"a", "b"}, {"ab", ""}, {"", "ab"},
		{"a;cookie:b=1:c;", "d"}, {"1:a", "b"}, {long, "b"}, {long + "y", "b"},
	} {
		k := key(t, request("X-A", r.a, "X-B", r.b), "header:x-a", "header:x-b")
		name := r.a + " and " + r.b
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q have the key %q", name, other, k)
		}
		seen[k] = name
	}
	if key(t, request("X-A", "192.0.2.1"), "header:x-a") == key(t, request(), "header:x-a") {
		t.Error("a header can name another's address")
	}
}

// The short way to parse IPv4 agrees with netip about texts that are nearly addresses.
func TestParseIPv4(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 6))
	parts := []string{"0", "1", "9", "10", "99", "127", "255", "256", "00", "01", "1000", ".", ".", ".", ".", ".", ".", ":", ":", "65535", "65536", "080", "000080", " ", "x", "-", "[", "]", "%"}
	accepted := 0
	for range 1_000_000 {
		text := "192.0.2"
		for range rnd.IntN(9) {
			part := parts[rnd.IntN(len(parts))]
			switch rnd.IntN(4) {
			case 0:
				text = part + text
			default:
				text += part
			}
		}
		ip, ok := parseIPv4(text)
		if !ok {
			continue
		}
		accepted++
		want, err := netip.ParseAddr(text)
		if err != nil {
			var p netip.AddrPort
			p, err = netip.ParseAddrPort(text)
			want = p.Addr()
		}
		if err != nil || ip != want {
			t.Fatalf("%q is %v, want %v, %v", text, ip, want, err)
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d texts are addresses, this proves little", accepted)
	}
}

func TestClientIP(t *testing.T) {
	t.Parallel()
	id := identity(t)
	for _, tc := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"peer", "192.0.2.1:80", nil, "192.0.2.1"},
		{"untrusted peer is not believed", "192.0.2.1:80", []string{"198.51.100.7"}, "192.0.2.1"},
		{"trusted peer", "10.0.0.1:80", []string{"198.51.100.7"}, "198.51.100.7"},
		{"what the client wrote is not reached", "10.0.0.1:80", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"through two proxies", "10.0.0.1:80", []string{"203.0.113.9, 198.51.100.7, 10.1.1.1"}, "198.51.100.7"},
		{"lines are one list", "10.0.0.1:80", []string{"203.0.113.9", "198.51.100.7", "10.1.1.1, 10.1.1.2"}, "198.51.100.7"},
		{"all trusted: the leftmost", "10.0.0.1:80", []string{"10.9.9.9, 10.1.1.1"}, "10.9.9.9"},
		{"unreadable stops", "10.0.0.1:80", []string{"198.51.100.7, junk, 10.1.1.1"}, "10.1.1.1"},
		{"unreadable at once", "10.0.0.1:80", []string{"198.51.100.7, _hidden"}, "10.0.0.1"},
		{"empty entry stops", "10.0.0.1:80", []string{"198.51.100.7, "}, "10.0.0.1"},
		{"no header", "10.0.0.1:80", nil, "10.0.0.1"},
		{"with port", "10.0.0.1:80", []string{"198.51.100.7:5555"}, "198.51.100.7"},
		{"v6 by /64", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1:2::/64"},
		{"v6 with zone", "[fe80::1%eth0]:80", nil, "fe80::/64"},
		{"v6 trusted", "[fd00::1]:80", []string{"[2001:db8::1]:9, [fd00::2]"}, "2001:db8::/64"},
		{"v4 in v6", "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"v4 in v6 trusted", "[::ffff:10.0.0.1]:80", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"unix socket", "@", nil, "none"},
		{"16 proxies", "10.0.0.1:80", []string{"198.51.100.7" + strings.Repeat(",10.1.1.1", 15)}, "198.51.100.7"},
		{"17 proxies: the last that is read", "10.0.0.1:80", []string{"198.51.100.7, 10.1.1.9" + strings.Repeat(",10.1.1.1", 15)}, "10.1.1.9"},
		{"17 proxies in lines", "10.0.0.1:80", append([]string{"198.51.100.7", "10.1.1.9"}, strings.Split(strings.Repeat("10.1.1.1,", 14)+"10.1.1.1", ",")...), "10.1.1.9"},
		{"spaces", "10.0.0.1:80", []string{"198.51.100.7" + strings.Repeat(" ", 116) + ",10.1.1.1"}, "198.51.100.7"},
		{"too many spaces stop", "10.0.0.1:80", []string{"198.51.100.7" + strings.Repeat(" ", 117) + ",10.1.1.1"}, "10.1.1.1"},
		{"too many spaces stop also behind others", "10.0.0.1:80", []string{"192.0.2.9, 198.51.100.7" + strings.Repeat(" ", 117) + ",10.1.1.1"}, "10.1.1.1"},
		{"a zone without end", "10.0.0.1:80", []string{"fd00::1%" + strings.Repeat("z", 200)}, "10.0.0.1"},
	} {
		r := &http.Request{RemoteAddr: tc.peer, Header: http.Header{"X-Forwarded-For": tc.forwarded}}
		if got := string(appendIP(nil, ClientIP(&id, &rule.Request{HTTP: r}))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Whatever a client writes, only what trusted proxies appended decides.
func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4", "a,b,,c", "[::1]:99", "10.0.0.1, 10.0.0.2", "::ffff:10.0.0.9%x", "\"1.2.3.4\"", "1.2.3.4 , "} {
		f.Add(s)
	}
	id := identity(f)
	f.Fuzz(func(t *testing.T, written string) {
		r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": {written, "198.51.100.7, 10.0.0.2"}}}
		if got := ClientIP(&id, &rule.Request{HTTP: r}).String(); got != "198.51.100.7" {
			t.Errorf("%q makes the client %s", written, got)
		}
		r.Header["X-Forwarded-For"] = []string{written}
		if ip := ClientIP(&id, &rule.Request{HTTP: r}); !ip.IsValid() || ip.Is4In6() || ip.Zone() != "" {
			t.Errorf("%q makes the client %v", written, ip)
		}
	})
}

// parseActor returns the actor that a configuration writes as text.
func parseActor(text string) rule.Actor {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "actor":
		kind = "account"
	case "header":
		name = http.CanonicalHeaderKey(name)
	}
	return rule.Actor{Kind: kind, Name: name}
}
