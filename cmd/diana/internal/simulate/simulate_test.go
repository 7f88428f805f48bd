// SPDX-License-Identifier: MIT

package simulate

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
)

func newCount(t *testing.T, yaml string) *Count {
	t.Helper()
	loaded, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	count, err := NewCount(loaded, config.DefaultVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// Every span has the events of its time, also after the spans have become longer.
func TestTimeline(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		tl := newTimeline()
		at := random.Int64N(60*365*86400) * 1_000_000
		step := int64(1) << random.IntN(50)
		var moments []int64
		for range 1 + random.IntN(200) {
			moments = append(moments, at)
			span := tl.span(at)
			span.Requests++
			span.refuse("a", 1)
			if at += random.Int64N(step); at > 200*365*86400*1_000_000 {
				break
			}
		}
		if len(tl.Spans) > mostSpans {
			t.Fatalf("%d spans", len(tl.Spans))
		}
		if tl.Spans[len(tl.Spans)-1].Requests == 0 || tl.Spans[0].Requests == 0 {
			t.Fatalf("nothing in the first or the last of %d spans", len(tl.Spans))
		}
		width := time.Duration(tl.Seconds) * time.Second
		for i, span := range tl.Spans {
			want := int64(0)
			for _, m := range moments {
				if since := time.UnixMicro(m).Sub(span.Begin); since >= 0 && since < width {
					want++
				}
			}
			if span.Requests != want || span.ByRule["a"] != want || span.Refused != 0 || span.Delayed != 0 {
				t.Fatalf("span %d: %+v, want %d", i, span, want)
			}
		}
	}
}

// A request is the one that net/http would make of the line, with its path as the gateway sends it on.
func TestRequests(t *testing.T) {
	t.Parallel()
	targets := []string{
		"/", "/a?b=c", "/a?", "/a?b=?", "/%73ample//x/../y;v=1", "/ä", "/a\\b", "/a\"b<>", "/a#b", "/a?b#c", "/%zz", "/a%", "/a\x7f", "/a\x01b", "/a?\x01",
		"http://host/a?b", "http://host", "https://host:1/%2F", "x:http://host/a", "//host/a", "a", "*", "host:443", "?a", "/a?b%zz", "/~-_.!$&'()*+,:;=@[]^`{|}",
	}
	const bytes = "/?%2F.;#:@[]\\\"<aZ09\xc3\xa4\x7f\x1f*"
	random := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		b := []byte("/")
		for range random.IntN(12) {
			b = append(b, bytes[random.IntN(len(bytes))])
		}
		targets = append(targets, string(b))
	}
	r := newRequests(weblog.NewNames(nil))
	for _, method := range []string{"GET", "OPTIONS", "CONNECT"} {
		for _, target := range targets {
			got, ok := r.request(&weblog.Entry{Method: method, Target: target, Host: "h", Remote: "192.0.2.1"})
			want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
			wantOK := err == nil && want.URL.Opaque == "" && (method != "OPTIONS" || target != "*")
			if ok != wantOK {
				t.Errorf("%s %q: a request: %v, want %v (%v)", method, target, ok, wantOK, err)
				continue
			}
			if !ok {
				continue
			}
			if got.Path != paths.Sent(want.URL) || got.HTTP.URL.RawQuery != want.URL.RawQuery || got.HTTP.Host != want.Host || got.Method != method {
				t.Errorf("%s %q: path %q, query %q, host %q; want %q, %q, %q", method, target,
					got.Path, got.HTTP.URL.RawQuery, got.HTTP.Host, paths.Sent(want.URL), want.URL.RawQuery, want.Host)
			}
		}
	}
}

// A request has a header only if its line has it.
func TestRequestsHeaders(t *testing.T) {
	t.Parallel()
	r := newRequests(weblog.NewNames([]string{"A", "B"}))
	for _, headers := range [][]string{{"", ""}, {"1", ""}, {"2", "3"}, {"", "4"}, {"", ""}, {"5", "6"}} {
		got, _ := r.request(&weblog.Entry{Method: "GET", Target: "/", Headers: headers, Query: "q"})
		if h := got.HTTP.Header; h.Get("A") != headers[0] || h.Get("B") != headers[1] || len(h["A"]) == 1 != (headers[0] != "") {
			t.Errorf("%v: %v", headers, h)
		}
		if got.HTTP.URL.RawQuery != "q" {
			t.Errorf("the query is %q", got.HTTP.URL.RawQuery)
		}
	}
}

// A request holds its slot for its duration. At most mostInside requests are in flight.
func TestInside(t *testing.T) {
	t.Parallel()
	c := newCount(t, "{url: /, rules: [{algo: C, rpu: 2}]}")
	allowed := func(at, lasts int64) bool {
		t.Helper()
		d, err := c.simulation.Take(at, diana.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.simulation.Leave(&d, weblog.Response{Duration: lasts})
		return d.Allowed
	}
	for i, tc := range []struct {
		at, lasts int64
		want      bool
	}{{0, 10, true}, {0, 20, true}, {9, 1, false}, {10, 5, true}, {14, 1, false}, {15, 0, true}, {15, 5, true}, {19, 1, false}, {20, 1, true}} {
		if got := allowed(tc.at, tc.lasts); got != tc.want {
			t.Errorf("request %d: %v", i, got)
		}
	}

	c = newCount(t, fmt.Sprintf("{url: /, rules: [{algo: C, rpu: %d}]}", mostInside+10))
	for range mostInside + 5 {
		if !allowed(0, 10) {
			t.Fatal("refused below the limit")
		}
	}
	if c.simulation.inside != mostInside || c.simulation.early != 5 {
		t.Errorf("%d are remembered, %d were let out early", c.simulation.inside, c.simulation.early)
	}
}

// A request in flight keeps no block of the log in memory. Not parallel, because it measures the
// heap of the whole process.
func TestInsideKeepsNoText(t *testing.T) {
	c := NewComparison(weblog.NewNames(nil), newCount(t, "{url: /, rules: [{algo: C, rpu: 100}]}"))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range 64 {
		block := "GET/a" + strings.Repeat("x", 1<<20)
		e := &weblog.Entry{Method: block[:3], Target: block[3:5], Remote: "192.0.2.1", Response: weblog.Response{Duration: 1}}
		if outcomes, err := c.Play(e); err != nil || !outcomes[0].Allowed {
			t.Fatal(outcomes, err)
		}
	}
	if kept := heap() - before; c.counts[0].simulation.inside != 64 || kept > 16<<20 {
		t.Errorf("%d inside keep %d MiB", c.counts[0].simulation.inside, kept>>20)
	}
}

// A refusal by an override counts for its rule.
func TestOverridesCompared(t *testing.T) {
	t.Parallel()
	names := weblog.NewNames(nil)
	old := newCount(t, "{url: /, rules: [{name: each, actor: ip, rpu: 5}]}")
	next := newCount(t, "{url: /, rules: [{name: each, actor: ip, rpu: 5, except: [192.0.2.9], overrides: {192.0.2.1: {rpu: 0}, 192.0.2.2: {rpu: 1}}}]}")
	c := NewComparison(names, old, next)
	for i := range 24 {
		e := &weblog.Entry{Method: "GET", Target: "/", Remote: []string{"192.0.2.1", "192.0.2.2", "192.0.2.9"}[i%3]}
		if _, err := c.Play(e); err != nil {
			t.Fatal(err)
		}
	}
	if old.byRule[0].n != 3*3 || next.byRule[0].n != 8+7 || old.only != 3 || next.only != 5+4 || next.onlyByRule[0].n != 5+4 {
		t.Errorf("%d and %d are refused, %d and %d by one alone", old.byRule[0].n, next.byRule[0].n, old.only, next.only)
	}
}

// The file of a divert need not exist on the machine that replays logs.
func TestDivertFileIsNotRead(t *testing.T) {
	t.Parallel()
	newCount(t, "{url: /, rules: [{rpu: 1}], divert: {status: 200, file: /nowhere/to/be/found.html}}")
}

// If no line has a host, a note says so.
func TestNoteOfHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{"": 1, "example.org": 0} {
		c := NewComparison(weblog.NewNames(nil), newCount(t, "{url: /, rules: [{actor: host, unit: minute, rpu: 1}]}"))
		if _, err := c.Play(&weblog.Entry{Method: "GET", Target: "/", Remote: "192.0.2.1", Host: host}); err != nil {
			t.Fatal(err)
		}
		if notes := c.seen.notes(c.counts[0]); len(notes) != want {
			t.Errorf("host %q: notes %q, want %d", host, notes, want)
		}
	}
}

// A note counts the requests without a valid address.
func TestNoteOfAddress(t *testing.T) {
	t.Parallel()
	c := NewComparison(weblog.NewNames(nil), newCount(t, "{url: /, rules: [{actor: ip, rpu: 1}]}"))
	for _, remote := range []string{"192.0.2.1", "192.0.2.1:80", "::1", "[::1]", "[::1]:80", "fe80::1%eth0", "", "unix:", "name", "[192.0.2.1]", "192.0.2.1,"} {
		if _, err := c.Play(&weblog.Entry{Method: "GET", Target: "/", Remote: remote}); err != nil {
			t.Fatal(err)
		}
	}
	if most := c.counts[0].byRule[0].top.Most(1)[0]; c.seen.homeless != 5 || most.Name != "ip=none;" || most.N != 4 {
		t.Errorf("%d come from no address, and refused most is %+v", c.seen.homeless, most)
	}
}

// A note counts durations that are probably not in seconds.
func TestNoteOfDurations(t *testing.T) {
	t.Parallel()
	for duration, want := range map[int64]int{weblog.Unknown: 0, day * micros: 0, day*micros + 1: 1} {
		c := NewComparison(weblog.NewNames(nil), newCount(t, "{url: /, rules: [{rpu: 1}]}"))
		if _, err := c.Play(&weblog.Entry{Method: "GET", Target: "/", Remote: "192.0.2.1", Response: weblog.Response{Duration: duration}}); err != nil {
			t.Fatal(err)
		}
		if notes := c.seen.logNotes(nil); len(notes) != want {
			t.Errorf("%d µs: notes %q, want %d", duration, notes, want)
		}
	}
}

// A simulation charges what the lines of a log say that the answers have cost. A line without it keeps the
// reservation, and a note says so.
func TestCosts(t *testing.T) {
	t.Parallel()
	c := newCount(t, "{url: /, rules: ["+
		"{name: tokens, algo: W, unit: day, rpu: 100, cost: {answer: openai, reserve: 10}}, "+
		"{name: bytes, algo: W, unit: day, rpu: 1000, cost: {answer: bytes}}, "+
		"{name: ms, algo: W, unit: day, rpu: 10000, cost: {answer: duration}}]}")
	for i, r := range []weblog.Response{
		{Duration: 2_500_000, Bytes: 300, Cost: 40},
		{Duration: 1, Bytes: 0, Cost: 0},
		{Bytes: weblog.Unknown, Cost: weblog.Unknown},
	} {
		d, err := c.simulation.Take(int64(i)*10_000_000, diana.Request{})
		if err != nil {
			t.Fatal(err)
		}
		c.simulation.Leave(&d, r)
	}
	d, err := c.simulation.Take(60_000_000, diana.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done()
	var left []int64
	for i := range d.Verdicts {
		left = append(left, d.Verdicts[i].Remaining)
	}
	if want := []int64{100 - 40 - 10 - 10, 1000 - 300 - 1 - 1, 10000 - 2500 - 1 - 0 - 1}; !slices.Equal(left, want) {
		t.Errorf("%d left, want %d", left, want)
	}
}
