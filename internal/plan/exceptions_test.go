// SPDX-License-Identifier: MIT

package plan

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

func who(t testing.TB, texts ...string) (list []rule.Who) {
	t.Helper()
	for _, text := range texts {
		var w rule.Who
		if err := w.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	return list
}

// exceptional compiles a rule of 10 a second that has exceptions.
func exceptional(t testing.TB, actor string, except []string, overrides map[string]int64) *Set {
	t.Helper()
	r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 10, Unit: time.Second}}
	for text := range strings.SplitSeq(actor, "+") {
		a := parseActor(text)
		r.Actor = append(r.Actor, a)
	}
	r.Except = who(t, except...)
	for text, n := range overrides {
		r.Overrides = append(r.Overrides, rule.Override{Who: who(t, text)[0], N: n})
	}
	s, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// limitOf returns the N that counts for a request, or -1 if the rule skips the request.
func limitOf(t testing.TB, s *Set, req *rule.Request) int64 {
	t.Helper()
	client := s.Client(req)
	_, r := s.Rules[0].AppendKey(nil, &client)
	x := explain(t, s, req)[0]
	if x.Excepted != (r == nil) || r != nil && x.Rule != r {
		t.Errorf("explained %+v, and limitOf by %v", x, r)
	}
	if r == nil {
		return -1
	}
	return r.Limit.N
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		actor     string
		except    []string
		overrides map[string]int64
		request   *rule.Request
		want      int64
	}{
		// values
		{"account", []string{"ann"}, nil, request("X-Account-Id", "ann"), -1},
		{"account", []string{"ann"}, nil, request("X-Account-Id", "Ann"), 10},
		{"account", []string{"ann"}, nil, request("X-Account-Id", "ann "), -1},
		{"account", []string{"ann"}, nil, request("X-Account-Id", "bob"), 10},
		{"account", []string{"ann"}, nil, request(), 10},
		{"account", []string{"ann"}, nil, request("Cookie", "account=ann"), -1},
		{"account", []string{"ann"}, nil, request("Cookie", "account=ann", "X-Account-Id", "bob"), 10}, // who the header says it is
		{"account", []string{"ann"}, nil, request("X-Device-Id", "ann"), 10},
		{"account", []string{"ann"}, nil, &rule.Request{Actors: map[string]string{"account": "ann"}}, -1},
		{"account", []string{"ann"}, nil, &rule.Request{Actors: map[string]string{"device": "ann"}}, 10},
		{"device", nil, map[string]int64{"d": 99}, request("X-Device-Id", "d"), 99},
		{"query:key", nil, map[string]int64{"k y": 99}, request(), 99},
		{"header:x-key", nil, map[string]int64{"k": 0}, request("X-Key", "k"), 0},
		{"account", nil, map[string]int64{strings.Repeat("x", 300): 99}, request("X-Account-Id", strings.Repeat("x", 300)), 99},

		// A Value does not match the address that counts because the request has no value. A
		// Value that looks like an address is not an address.
		{"account", []string{"=192.0.2.1"}, nil, request(), 10},
		{"account", []string{"=192.0.2.1"}, nil, request("X-Account-Id", "192.0.2.1"), -1},
		{"account", []string{"192.0.2.1"}, nil, request(), -1},
		{"account", []string{"198.51.100.7"}, nil, request("X-Account-Id", "198.51.100.7"), 10},
		{"account", []string{"none", "ip=none;", "=192.0.2.1"}, nil, &rule.Request{}, 10},

		// networks
		{"ip", []string{"192.0.2.0/24"}, nil, request(), -1},
		{"ip", []string{"192.0.3.0/24", "192.0.2.0/32", "192.0.2.2/31", "::/0"}, nil, request(), 10},
		{"account", []string{"192.0.2.0/24"}, nil, request("X-Account-Id", "bob"), -1},
		{"all", []string{"192.0.2.0/24"}, nil, request(), -1},
		{"all", nil, map[string]int64{"192.0.2.0/24": 99}, request(), 99},
		{"ip+device", nil, map[string]int64{"192.0.2.0/24": 99}, request("X-Device-Id", "d"), 99},
		{"ip", nil, map[string]int64{"192.0.2.0/24": 1, "192.0.2.1": 2, "192.0.0.0/16": 3, "0.0.0.0/0": 4}, request(), 2},
		{"ip", nil, map[string]int64{"0.0.0.0/0": 4, "192.0.2.2/31": 5}, request(), 4},
		{"ip", nil, map[string]int64{"0.0.0.0/0": 4}, &rule.Request{}, 10}, // no address

		// both: a value goes before a network, and an exception before all
		{"account", nil, map[string]int64{"192.0.2.1": 1, "ann": 2}, request("X-Account-Id", "ann"), 2},
		{"account", []string{"192.0.0.0/16"}, map[string]int64{"ann": 2, "192.0.2.1": 1}, request("X-Account-Id", "ann"), -1},

		// IPv6: counted by /64, and told apart to the last bit
		{"ip", nil, map[string]int64{"2001:db8::/32": 1, "2001:db8::/64": 2, "2001:db8::5": 3}, &rule.Request{Actors: map[string]string{"ip": "2001:db8::5"}}, 3},
		{"ip", nil, map[string]int64{"2001:db8::/32": 1, "2001:db8::/64": 2, "2001:db8::5": 3}, &rule.Request{Actors: map[string]string{"ip": "2001:db8::6"}}, 2},
		{"ip", nil, map[string]int64{"2001:db8::/32": 1, "2001:db8::/64": 2, "2001:db8::5": 3}, &rule.Request{Actors: map[string]string{"ip": "2001:db8:0:1::"}}, 1},
		{"ip", nil, map[string]int64{"0.0.0.0/0": 1}, &rule.Request{Actors: map[string]string{"ip": "2001:db8::"}}, 10},
		{"ip", nil, map[string]int64{"192.0.2.0/24": 1}, &rule.Request{Actors: map[string]string{"ip": "::ffff:192.0.2.9"}}, 1},
		{"ip", nil, map[string]int64{"::ffff:192.0.2.0/120": 1}, &rule.Request{Actors: map[string]string{"ip": "192.0.2.9"}}, 1},
	} {
		s := exceptional(t, row.actor, row.except, row.overrides)
		if got := limitOf(t, s, row.request); got != row.want {
			t.Errorf("%s, except %v, overrides %v: %d, want %d", row.actor, row.except, row.overrides, got, row.want)
		}
	}
}

// Only what trusted proxies say of a client's address makes it one of a network's.
func TestExceptionsBehindProxies(t *testing.T) {
	t.Parallel()
	s := exceptional(t, "account", []string{"203.0.113.0/24"}, nil)
	for _, row := range []struct {
		peer, forwarded string
		want            int64
	}{
		{"203.0.113.9:80", "", -1},
		{"192.0.2.1:80", "203.0.113.9", 10}, // nobody trusts it
		{"10.0.0.1:80", "203.0.113.9", -1},
		{"10.0.0.1:80", "203.0.113.9, 192.0.2.1", 10},
		{"10.0.0.1:80", "192.0.2.1, 203.0.113.9", -1},
		{"203.0.113.9:80", "192.0.2.1", -1},
	} {
		r := &http.Request{RemoteAddr: row.peer, Header: http.Header{"X-Forwarded-For": {row.forwarded}}}
		if got := limitOf(t, s, &rule.Request{HTTP: r}); got != row.want {
			t.Errorf("%s for %s: %d, want %d", row.peer, row.forwarded, got, row.want)
		}
	}
}

// slowFind looks at every entry.
func slowFind(list []rule.Who, value string, ip netip.Addr) int {
	found := -1
	for i, w := range list {
		if w.Value != "" && w.Value == value {
			return i
		}
		if w.Value == "" && w.Network.Contains(ip) && (found < 0 || list[found].Network.Bits() < w.Network.Bits()) {
			found = i
		}
	}
	return found
}

// randomAddr returns an address of few that differ, at either end, so that networks meet.
func randomAddr(rnd *rand.Rand) netip.Addr {
	few := func() byte { return []byte{0, 0, 1, 127, 128, 255}[rnd.IntN(6)] }
	if rnd.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{few(), few(), few(), few()})
	}
	var b [16]byte
	for i := range b {
		if i < 3 || i > 12 || rnd.IntN(4) == 0 {
			b[i] = few()
		}
	}
	if rnd.IntN(8) == 0 { // IPv4 in IPv6
		b = [16]byte{10: 255, 11: 255, 12: b[12], 13: b[13], 14: b[14], 15: b[15]}
	}
	return netip.AddrFrom16(b)
}

// The directory finds what looking at every entry finds.
func TestDirectoryAgainstSlowModel(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 6))
	account := []rule.Actor{{Kind: "account"}}
	hits := 0
	for range 2000 {
		var list []rule.Who
		seen := map[rule.Who]bool{}
		for range rnd.IntN(40) {
			w := rule.Who{Value: fmt.Sprint("v", rnd.IntN(40))}
			if rnd.IntN(4) > 0 {
				ip := randomAddr(rnd)
				w = rule.Who{Network: netip.PrefixFrom(ip, rnd.IntN(ip.BitLen()+1))}.Canonical()
			}
			if !seen[w] {
				seen[w] = true
				list = append(list, w)
			}
		}
		d, err := newDirectory(list, account, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			value, ip := "", randomAddr(rnd).Unmap()
			if rnd.IntN(3) == 0 {
				value = fmt.Sprint("v", rnd.IntN(50))
			}
			if len(list) > 0 && rnd.IntN(2) == 0 { // at the ends of a network, or just outside
				if p := list[rnd.IntN(len(list))].Network; p.IsValid() {
					ip = []netip.Addr{p.Addr(), p.Addr().Prev(), lastOf(p), lastOf(p).Next()}[rnd.IntN(4)].Unmap()
				}
			}
			got, want := d.find(value, &Client{ip: ip, known: true}), slowFind(list, value, ip)
			if got != want {
				t.Fatalf("%v: %q from %v is entry %d, want %d", list, value, ip, got, want)
			}
			if want >= 0 {
				hits++
			}
		}
	}
	if hits < 50_000 {
		t.Errorf("only %d were found, this proves little", hits)
	}
}

func TestCompileRefusesExceptions(t *testing.T) {
	t.Parallel()
	account, all := []rule.Actor{{Kind: "account"}}, []rule.Actor{rule.All}
	network := netip.MustParsePrefix
	for _, row := range []struct {
		actor     []rule.Actor
		except    []rule.Who
		overrides []rule.Override
		want      string
	}{
		{account, []rule.Who{{}}, nil, "except: there is neither a value nor a network"},
		{account, []rule.Who{{Value: "x", Network: network("10.0.0.0/8")}}, nil, "except: there is a value and a network"},
		{account, who(t, "x", "x"), nil, "except: x is there twice"},
		{account, []rule.Who{{Network: network("10.0.0.0/8")}, {Network: network("::ffff:10.9.9.9/104")}}, nil, "except: 10.0.0.0/8 is there twice"},
		{account, who(t, "x"), []rule.Override{{Who: who(t, "x")[0], N: 1}}, "overrides: x is in except"},
		{account, nil, []rule.Override{{Who: who(t, "x")[0], N: -1}}, "overrides: x: limit: N is -1"},
		{account, nil, []rule.Override{{Who: who(t, "x")[0], N: 1}, {Who: who(t, "x")[0], N: 2}}, "overrides: x is there twice"},
		{all, who(t, "x"), nil, "except: a rule with actor all can only have networks"},
		{nil, who(t, "x"), nil, "except: a rule with actor all can only have networks"},
		{[]rule.Actor{{Kind: "ip"}}, nil, []rule.Override{{Who: who(t, "x")[0]}}, "overrides: actor ip is an address"},
		{[]rule.Actor{{Kind: "ip"}, {Kind: "account"}}, who(t, "x"), nil, "except: several actors count as one"},
	} {
		r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}, Actor: row.actor, Except: row.except, Overrides: row.overrides}
		_, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, identity(t), rule.Paths{}, actors.Kinds())
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// Overrides of one limit are one variant, which counts on where the rule did, unless its
// states are of another layout. No two rules count together.
func TestVariants(t *testing.T) {
	t.Parallel()
	tb := func(n int64, overrides ...int64) rule.Rule {
		r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: n, Unit: time.Second, Burst: 7}, Actor: []rule.Actor{{Kind: "account"}}}
		for i, n := range overrides {
			r.Overrides = append(r.Overrides, rule.Override{Who: rule.Who{Value: fmt.Sprint("v", i)}, N: n, Burst: 7})
		}
		return r
	}
	s, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{tb(10, 20, 30, 20, 10, 0, 1031), tb(1031, 10, 0), tb(0, 10, 1031)}}}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Variants) != 4+2+2 {
		t.Errorf("%d variants", len(s.Variants))
	}
	byName := map[string]*Rule{} // of counters
	for i, r := range append(append([]*Rule{}, s.Rules...), s.Variants...) {
		if r.Slot != i || s.Rules[r.Index].Name != r.Name {
			t.Errorf("rule %d has the slot %d, and is of rule %d", i, r.Slot, r.Index)
		}
		if other := byName[r.Counters]; other != nil && (other.Name != r.Name || other.Meter.StateVersion() != r.Meter.StateVersion()) {
			t.Errorf("%s and %s count by %q", other.Name, r.Name, r.Counters)
		}
		byName[r.Counters] = r
	}
	for i, same := range map[int]bool{0: true, 1: true, 2: false, 3: false} { // 20, 30, 0, 1031
		if v := s.Variants[i]; (v.Counters == s.Rules[0].Counters) != same {
			t.Errorf("%v counts by %q, the rule by %q", v.Limit, v.Counters, s.Rules[0].Counters)
		}
	}

	// The name of an actor's counters is the same whether an override says the limit or the rule.
	one, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{tb(1031), tb(0), tb(10)}}}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range map[int]*Rule{0: s.Variants[3], 1: s.Variants[5], 2: s.Variants[6]} {
		if one.Rules[i].Counters != v.Counters {
			t.Errorf("%v: %q as an override, and %q as a rule", v.Limit, v.Counters, one.Rules[i].Counters)
		}
	}
}

// many returns the overrides of so many, half of them networks of four lengths.
func many(n int) (list []rule.Override) {
	for i := range n / 2 {
		list = append(list, rule.Override{Who: rule.Who{Value: fmt.Sprintf("account-%d", i)}, N: int64(1 + i%5)})
		ip := binary.BigEndian.AppendUint32(nil, uint32(i)<<12)
		addr, _ := netip.AddrFromSlice(ip)
		list = append(list, rule.Override{Who: rule.Who{Network: netip.PrefixFrom(addr, 20+i%4).Masked()}, N: int64(1 + i%5)})
	}
	return list
}

func setOf(t testing.TB, overrides []rule.Override) *Set {
	t.Helper()
	r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 10, Unit: time.Second}, Actor: []rule.Actor{{Kind: "account"}}, Overrides: overrides}
	s, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExceptionsDoNotAllocate(t *testing.T) {
	s := setOf(t, many(10_000))
	if len(s.Variants) != 5 {
		t.Errorf("%d variants of 5 limits", len(s.Variants))
	}
	for _, req := range []*rule.Request{
		{Actors: map[string]string{"account": "account-77"}},
		{Actors: map[string]string{"account": "nobody", "ip": "0.1.23.45"}},
		{Actors: map[string]string{"account": "nobody", "ip": "2001:db8::1"}},
	} {
		key := make([]byte, 0, 100)
		if got := testing.AllocsPerRun(100, func() {
			client := s.Client(req)
			key, _ = s.Rules[0].AppendKey(key[:0], &client)
		}); got != 0 {
			t.Errorf("%v: %v allocations", req.Actors, got)
		}
	}
}

// BenchmarkExceptions is what finding the limit of an actor adds to finding its key, with no
// overrides and with so many.
func BenchmarkExceptions(b *testing.B) {
	for _, n := range []int{0, 10, 10_000} {
		s := setOf(b, many(n))
		for _, who := range []string{"value", "network", "nobody"} {
			req := &rule.Request{Actors: map[string]string{"account": "account-3"}}
			client := Client{req: req, ip: netip.MustParseAddr("198.51.100.7"), known: true}
			if who != "value" {
				req.Actors["account"] = "nobody"
			}
			if who == "network" {
				client.ip = netip.MustParseAddr("0.0.32.1")
			}
			b.Run(fmt.Sprintf("overrides=%d/%s", n, who), func(b *testing.B) {
				b.ReportAllocs()
				key := make([]byte, 0, 100)
				for b.Loop() {
					key, _ = s.Rules[0].AppendKey(key[:0], &client)
				}
			})
		}
	}
}

// CountsAll says the same of a rule before and after it is compiled.
func TestCountsAll(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		actor  string
		except []string
		want   bool
	}{{"all", nil, true}, {"all", []string{"10.0.0.0/8"}, false}, {"ip", nil, false}, {"account", []string{"ann"}, false}} {
		r := exceptional(t, row.actor, row.except, nil).Rules[0]
		if r.CountsAll() != row.want || CountsAll(r.Rule) != row.want {
			t.Errorf("%s except %v: %v, and %v before it is compiled, want %v", row.actor, row.except, r.CountsAll(), CountsAll(r.Rule), row.want)
		}
	}
}
