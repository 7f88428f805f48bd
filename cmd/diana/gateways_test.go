// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// Three gateways with 256 clients each admit together exactly what one limit promises. As in
// TestPromises, all bounds follow from the times when requests were sent and answered. Redis has
// the same clock, that of this machine. A slow machine gets lower limits, because a limit that its requests
// do not reach proves nothing.
func TestGatewaysCountTogether(t *testing.T) {
	for _, redis := range []struct {
		name string
		way  func(t *testing.T) string
	}{
		{"one Redis", func(t *testing.T) string { return fmt.Sprintf("url: %q", redistest.Start(t).URL()) }},
		{"a Cluster of three", func(t *testing.T) string {
			return "cluster: [" + strings.Join(redistest.StartCluster(t, 3).Addrs(), ", ") + "]"
		}},
	} {
		t.Run(redis.name, func(t *testing.T) { testCountTogether(t, redis.way(t)) })
	}
}

func testCountTogether(t *testing.T, way string) {
	const clients = 256 // of each gateway
	each, most, long := 3, 200, 3500*time.Millisecond
	if testing.Short() || race.Enabled {
		each, most, long = 1, 40, 1500*time.Millisecond
	}
	// The gateways never give Redis up, however slow the machine is.
	way += ", timeout: 10s"
	f := startFleet(t, []string{way, way, way}, clients, `
- {url: /month/w, rules: [{algo: W, align: first, unit: 744h, rpu: 500, scope: global}]}
- {url: /month/tb, rules: [{algo: TB, unit: 744h, rpu: 500, scope: global}]}
- {url: /month/sw, rules: [{algo: SW, unit: 744h, rpu: 500, scope: global}]}
- {url: /month/sl, rules: [{algo: SL, unit: 744h, rpu: 500, scope: global}]}
- {url: /month/idle, rules: [{algo: W, align: first, unit: 744h, rpu: 300, scope: global}]}
- {url: /settled, rules: [{actor: "query:gateway", algo: W, rpu: 2, scope: global}]}
`+aSecond(200)+aSecond(40)+aSecond(8))
	sum := 0     // of all that was admitted
	speed := 0.0 // of this machine, in requests a second

	for _, path := range []string{"/month/w", "/month/tb", "/month/sw", "/month/sl"} {
		all := f.flood(t, 3, clients, []string{path}, func(i int) bool { return i < each })[path]
		ok := len(admitted(all))
		if sum += ok; ok != 500 {
			t.Errorf("%s: %d of %d admitted, want 500", path, ok, len(all))
		}
		begin, end := span(all)
		speed = float64(len(all)) / end.Sub(begin).Seconds()
	}

	all := f.flood(t, 2, clients, []string{"/month/idle"}, func(i int) bool { return i < each })["/month/idle"]
	ok := len(admitted(all))
	if sum += ok; ok != 300 {
		t.Errorf("/month/idle: two gateways admitted %d of %d, want 300", ok, len(all))
	}
	if s := f.ask(t, 2, "/month/idle"); s.status != http.StatusServiceUnavailable {
		t.Errorf("a gateway without traffic answers %d where the others have used the limit up", s.status)
	}

	sum += f.settle(t)
	n, crowd := most, clients // a second, of which a busy machine may not reach 200; an answer must take less
	for n > 8 && speed < float64(4*4*n) {
		n, crowd = n/5, crowd/16
	}
	var paths []string
	for _, name := range []string{"w", "tb", "sw", "sl"} {
		paths = append(paths, fmt.Sprintf("/%d/%s", n, name))
	}
	w, tb, sw, sl := paths[0], paths[1], paths[2], paths[3]
	flood := f.flood(t, 3, crowd, paths, until(long))
	for _, path := range paths {
		all := flood[path]
		sum += len(admitted(all))
		if len(refused(all)) == 0 {
			t.Fatalf("%s: %d requests were too few to be refused", path, len(all))
		}
	}
	checkWindows(t, flood[w], n)
	checkBucket(t, tb, flood[tb], n, 2*n)
	checkSliding(t, sw, flood[sw], n, 1100*time.Millisecond) // ten slices and the one that has begun
	checkSliding(t, sl, flood[sl], n, time.Second)

	if got := f.arrived.Load(); got != int64(sum) {
		t.Errorf("%d requests reached the upstream, of %d that were admitted", got, sum)
	}
	for i, g := range f.gateways {
		if n := len(g.changes(t)); n != 1 {
			t.Errorf("gateway %d logged %d changes, want that Redis came within reach and stayed", i, n)
		}
	}
}

// aSecond returns rules of n requests a second.
func aSecond(n int) string {
	return fmt.Sprintf(`
- {url: /%[1]d/w, rules: [{algo: W, rpu: %[1]d, scope: global}]}
- {url: /%[1]d/tb, rules: [{algo: TB, rpu: %[1]d, burst: %[2]d, scope: global}]}
- {url: /%[1]d/sw, rules: [{algo: SW, rpu: %[1]d, scope: global}]}
- {url: /%[1]d/sl, rules: [{algo: SL, rpu: %[1]d, scope: global}]}
`, n, 2*n)
}

// settle waits until no gateway keeps to its share, as each does for a while after Redis has become
// reachable. It returns how many requests were admitted.
func (f *fleet) settle(t *testing.T) (ok int) {
	t.Helper()
	for i := range f.gateways {
		path := fmt.Sprintf("/settled?gateway=%d", i)
		if !testproc.Becomes(func() bool { // the share of 2 is 1
			a, b := f.ask(t, i, path), f.ask(t, i, path)
			ok += len(admitted([]seen{a, b}))
			return a.status == http.StatusOK && b.status == http.StatusOK && a.sent.Unix() == b.answered.Unix()
		}) {
			t.Fatalf("gateway %d still keeps to its share", i)
		}
	}
	return ok
}

// checkWindows checks n in each window of a second. A window in which a request was
// refused is full.
func checkWindows(t *testing.T, all []seen, n int) {
	t.Helper()
	ok, no := admitted(all), refused(all)
	begin, end := span(all)
	windows, full := 0, 0
	for w := begin.Truncate(time.Second); w.Before(end); w = w.Add(time.Second) {
		windows++
		surely, perhaps := count(ok, w, w.Add(time.Second))
		if surely > n {
			t.Errorf("/w: %d were admitted within a window, want at most %d", surely, n)
		}
		if turnedAway, _ := count(no, w, w.Add(time.Second)); turnedAway > 0 {
			full++
			if perhaps < n {
				t.Errorf("/w: %d were admitted within a full window, want %d", perhaps, n)
			}
		}
	}
	if full == 0 {
		t.Errorf("/w: %d requests were too few for a full window", len(all))
	}
	if len(ok) < full*n || len(ok) > windows*n {
		t.Errorf("/w: %d of %d admitted in %d windows, want %d to %d", len(ok), len(all), windows, full*n, windows*n)
	}
	t.Logf("/w: %d of %d admitted, want %d to %d: %d windows of %d were seen to be full", len(ok), len(all), full*n, windows*n, full, windows)
}

// checkBucket checks burst and rate exactly. A refused request found less than one token. Before the first refusal the
// bucket may be full, so that tokens are lost.
func checkBucket(t *testing.T, path string, all []seen, rate, burst int) {
	t.Helper()
	ok, no := admitted(all), refused(all)
	if len(no) == 0 {
		t.Errorf("%s: %d requests were too few to be refused", path, len(all))
		return
	}
	begin, end := span(all)
	first, last := no[0].answered, no[0].sent
	for _, s := range no {
		if s.answered.Before(first) {
			first = s.answered
		}
		if s.sent.After(last) {
			last = s.sent
		}
	}
	dripped := func(d time.Duration) int { return max(int(int64(rate)*d.Microseconds()/1e6), 0) }
	atLeast, atMost := burst+dripped(last.Sub(first)), burst+dripped(end.Sub(begin)+time.Microsecond)
	if len(ok) < atLeast || len(ok) > atMost {
		t.Errorf("%s: %d of %d admitted, want %d to %d", path, len(ok), len(all), atLeast, atMost)
	}
	t.Logf("%s: %d of %d admitted, want %d to %d", path, len(ok), len(all), atLeast, atMost)
}

// checkSliding checks n in any interval of a second. A refused request came after n others in the
// remembered time.
func checkSliding(t *testing.T, path string, all []seen, n int, remembered time.Duration) {
	t.Helper()
	ok := admitted(all)
	most := 0
	for _, s := range ok {
		surely, _ := count(ok, s.sent, s.sent.Add(time.Second))
		most = max(most, surely)
	}
	if most > n {
		t.Errorf("%s: %d were admitted within a second, want at most %d", path, most, n)
	}
	// All requests may lie in the time before a refusal, except those certainly before or after it.
	var sent, answered []time.Time
	for _, s := range ok {
		sent, answered = append(sent, s.sent), append(answered, s.answered)
	}
	slices.SortFunc(sent, time.Time.Compare)
	slices.SortFunc(answered, time.Time.Compare)
	for _, s := range refused(all) {
		before, _ := slices.BinarySearchFunc(answered, s.sent.Add(-remembered), time.Time.Compare)
		since, _ := slices.BinarySearchFunc(sent, s.answered, time.Time.Compare)
		if since-before < n {
			t.Fatalf("%s: refused when at most %d had been admitted within %v, want %d", path, since-before, remembered, n)
		}
	}
	t.Logf("%s: %d of %d admitted, at most %d surely within a second, want %d", path, len(ok), len(all), most, n)
}
