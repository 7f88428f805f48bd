// SPDX-License-Identifier: MIT

package plan

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// headerSize is how large a header diana serve accepts, in bytes.
const headerSize = 64 << 10

// filled returns text as often as a header has room for it, with as much around it a time.
func filled(text string, around int) []string {
	lines := make([]string, headerSize/(len(text)+around))
	for i := range lines {
		lines[i] = text
	}
	return lines
}

// fill returns text repeated up to the size of a header.
func fill(text string) string { return strings.Repeat(text, headerSize/len(text)) }

// measure is what it costs to find the counters and costs of a request under three rules.
func measure(b *testing.B, r *http.Request, actor, cost string) {
	b.Helper()
	var rules []rule.Rule
	for range 3 {
		a := parseActor(actor)
		var c rule.Cost
		if err := c.UnmarshalText([]byte(cost)); err != nil {
			b.Fatal(err)
		}
		rules = append(rules, rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}, Actor: []rule.Actor{a}, Cost: c})
	}
	s, err := Compile([]rule.Entry{{URL: pattern(b, "/"), Rules: rules}}, identity(b), rule.Paths{}, actors.Kinds())
	if err != nil {
		b.Fatal(err)
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.URL == nil {
		r.URL = &url.URL{Path: "/"}
	}
	r.RemoteAddr = "10.0.0.1:1234"
	req := &rule.Request{Method: "GET", Path: "/", HTTP: r}
	key := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		client := s.Client(req)
		for _, r := range s.Rules {
			key, _ = r.AppendKey(key[:0], &client)
			s.CostOf(r, req)
		}
	}
}

// BenchmarkWorst is the most that finding who makes a request and what it costs takes, under
// three rules that each look at what is worst. None may take more than 100 µs.
func BenchmarkWorst(b *testing.B) {
	field := func(name string, lines ...string) *http.Request {
		return &http.Request{Header: http.Header{name: lines}}
	}
	query := func(q string) *http.Request { return &http.Request{URL: &url.URL{Path: "/", RawQuery: q}} }
	part := fill("x")[:actors.MostRead-20]
	value := part[:actors.MostValue-20]
	encoded := strings.Repeat("%41", actors.MostValue/3-20)
	for _, tc := range []struct {
		name, actor, cost string
		request           *http.Request
	}{
		{"forwarded/proxies", "ip", "1", field("X-Forwarded-For", fill(",10.0.0.1"))},
		{"forwarded/proxies of IPv6", "ip", "1", field("X-Forwarded-For", fill(" , [fd00:1:2:3:4:5:6:7]:65535"))},
		{"forwarded/zones", "ip", "1", field("X-Forwarded-For", fill(",fd00::1%"+strings.Repeat("z", 60)))},
		{"forwarded/lines", "ip", "1", field("X-Forwarded-For", filled("10.0.0.1", 19)...)},
		{"forwarded/spaces", "ip", "1", field("X-Forwarded-For", "10.0.0.1,"+fill(" "))},
		{"forwarded/no comma", "ip", "1", field("X-Forwarded-For", fill("1"))},
		{"header/one value", "header:X-Key", "1", field("X-Key", fill("x"))},
		{"header/a value that is read", "header:X-Key", "1", field("X-Key", value)},
		{"header/lines", "header:X-Key", "1", field("X-Key", filled("x", 9)...)},
		{"header/long lines", "header:X-Key", "1", field("X-Key", strings.Clone(value), strings.Clone(value), strings.Clone(value))},
		{"header/spaces", "header:X-Key", "1", field("X-Key", strings.Repeat(" ", len(value)))},
		{"host", "host", "1", &http.Request{Host: fill("H")}},
		{"host/that is read", "host", "1", &http.Request{Host: strings.Repeat("H", actors.LongestHost)}},
		{"host/port", "host", "1", &http.Request{Host: "h:" + strings.Repeat("0", actors.LongestHost-2)}},
		{"cookie/many", "cookie:sid", "1", field("Cookie", fill("a=b;"))},
		{"cookie/many that are read", "cookie:sid", "1", field("Cookie", strings.Repeat("sib="+value[:27]+";", actors.MostPairs-1))},
		{"cookie/lines", "cookie:sid", "1", field("Cookie", filled("a", 10)...)},
		{"cookie/empty", "cookie:sid", "1", field("Cookie", fill(";"))},
		{"cookie/spaces", "cookie:sid", "1", field("Cookie", "sid="+value+strings.Repeat(" ", len(value)))},
		{"cookie/spaces in front", "cookie:sid", "1", field("Cookie", strings.Repeat(" ", len(part))+"sid=x")},
		{"cookie/the same", "cookie:sid", "1", field("Cookie", strings.Repeat("sid="+value[:27]+";", actors.MostPairs-1))},
		{"cookie/one", "cookie:sid", "1", field("Cookie", "sid="+fill("x"))},
		{"cookie/one that is read", "cookie:sid", "1", field("Cookie", "sid="+value)},
		{"cookie/encoded", "cookie:sid", "1", field("Cookie", "sid="+encoded)},
		{"query/many", "query:key", "1", query(fill("a=b&"))},
		{"query/many that are read", "query:key", "1", query(strings.Repeat("ke="+value[:28]+"&", actors.MostPairs-1))},
		{"query/semicolons", "query:key", "1", query(strings.Repeat("key="+value[:27]+";", actors.MostPairs-1))},
		{"query/names", "query:" + strings.Repeat("k", 20), "1", query(strings.Repeat(strings.Repeat("%6b", 19)+"&", actors.MostRead/58))},
		{"query/spaces in front", "query:key", "1", query(strings.Repeat("+", len(part)) + "key=x")},
		{"query/empty", "query:key", "1", query(fill("&"))},
		{"query/the same", "query:key", "1", query(strings.Repeat("key="+value[:27]+"&", actors.MostPairs-1))},
		{"query/one", "query:key", "1", query("key=" + fill("x"))},
		{"query/one that is read", "query:key", "1", query("key=" + value)},
		{"query/encoded", "query:key", "1", query("key=" + encoded)},
		{"cost/lines", "all", "client:X-Cost", field("X-Cost", filled("1", 10)...)},
		{"cost/digits", "all", "client:X-Cost", field("X-Cost", fill("0"))},
		{"cost/spaces", "all", "client:X-Cost", field("X-Cost", "1"+fill(" ")+"1")},
	} {
		b.Run(tc.name, func(b *testing.B) { measure(b, tc.request, tc.actor, tc.cost) })
	}
	b.Run("forwarded/many networks", func(b *testing.B) {
		id := rule.Identity{}
		for i := range 250 {
			id.TrustedProxies = append(id.TrustedProxies, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24))
		}
		r := field("X-Forwarded-For", fill(",172.16.249.1"))
		r.RemoteAddr = "172.16.249.1:80"
		for b.Loop() {
			ClientIP(&id, &rule.Request{HTTP: r})
		}
	})
}

// ordinary is a request as browsers send it.
func ordinary() *http.Request {
	return &http.Request{RemoteAddr: "10.0.0.1:1234", Host: "example.com:8080", URL: &url.URL{Path: "/", RawQuery: "page=2&key=0a1b2c3d4e5f&sort=name"}, Header: http.Header{
		"X-Key":           {"0a1b2c3d4e5f"},
		"Cookie":          {"_ga=GA1.2.1234567890.1234567890; theme=dark; sid=0a1b2c3d4e5f; lang=en"},
		"X-Forwarded-For": {"192.0.2.1, 10.0.0.2"},
	}}
}

var sources = []string{"ip", "header:X-Key", "cookie:sid", "query:key", "host"}

// BenchmarkOrdinary is the same as BenchmarkWorst for an ordinary request.
func BenchmarkOrdinary(b *testing.B) {
	for _, actor := range sources {
		b.Run("actor="+actor, func(b *testing.B) { measure(b, ordinary(), actor, "1") })
	}
}

func TestSourcesDoNotAllocate(t *testing.T) {
	v := &resolver{identity(t), actors.Kinds()}
	id, req, key := identity(t), &rule.Request{HTTP: ordinary()}, make([]byte, 0, 100)
	for _, text := range sources {
		actor := parseActor(text)
		who, err := v.chains([]rule.Actor{actor})
		if err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(100, func() {
			client := Client{req: req, identity: &id}
			key, _ = appendKey(key[:0], who, &client)
		}); got != 0 {
			t.Errorf("%s: %v allocations", text, got)
		}
	}
}
