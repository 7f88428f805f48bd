// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
)

var overloadFor = flag.Duration("overload", 3*time.Second, "how long each part of TestOverload lasts")

// TestOverload runs three gateways and Redis on a machine with busy loops, while Redis works. No
// gateway may give Redis up. For longer:
//
//	go test -run TestOverload -v -overload 5m -timeout 15m
func TestOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes six seconds of load")
	}
	for _, timeout := range []time.Duration{time.Second, 50 * time.Millisecond} {
		t.Run(timeout.String(), func(t *testing.T) { testOverload(t, timeout) })
	}
}

func testOverload(t *testing.T, timeout time.Duration) {
	const clients = 32 // of each gateway
	n, long := 500, *overloadFor
	if race.Enabled {
		n, long = 100, long/2
	}
	way := fmt.Sprintf("url: %q, timeout: %v", redistest.Start(t).URL(), timeout)
	f := startFleet(t, []string{way, way, way}, clients, fmt.Sprintf(`
- {url: /w, rules: [{algo: W, rpu: %[1]d, scope: global}]}
- {url: /tb, rules: [{algo: TB, rpu: %[2]d, scope: global}]}
- {url: /settled, rules: [{actor: "query:gateway", algo: W, rpu: 2, scope: global}]}
`, n, n/2))
	f.settle(t)
	occupy(t, 20)

	stop := make(chan struct{})
	readings := make([][]reading, len(f.gateways))
	var pollers sync.WaitGroup
	for i, g := range f.gateways {
		pollers.Go(func() { readings[i] = g.poll(t, stop) })
	}
	all := f.flood(t, len(f.gateways), clients, []string{"/w", "/tb"}, until(long))
	close(stop)
	pollers.Wait()

	for i, g := range f.gateways {
		if c := g.changes(t); len(c) != 1 {
			t.Errorf("gateway %d logged %d changes, want one at the start: %v", i, len(c), c)
		}
	}
	exact := timeout >= time.Second
	windows := checkLate(t, all["/w"], n, readings, exact)
	tokens := checkLateTokens(t, all["/tb"], n/2, readings)
	slowest, polled := time.Duration(0), time.Duration(0)
	for _, path := range all {
		for _, s := range path {
			slowest = max(slowest, s.answered.Sub(s.sent))
		}
	}
	for _, own := range readings {
		for _, r := range own {
			polled = max(polled, r.end.Sub(r.begin))
		}
	}
	t.Logf("timeout %v: %d requests for /w and %d for /tb; %s; %s; slowest answer %v, slowest page of metrics %v",
		timeout, len(all["/w"]), len(all["/tb"]), windows, tokens, slowest.Round(time.Millisecond), polled.Round(time.Millisecond))
}

// occupy starts n busy loops. Each is a process that ends with the test, and that ends by itself
// when the test program has ended.
func occupy(t *testing.T, loops int) {
	t.Helper()
	const loop = `while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done`
	for range loops {
		cmd := exec.Command("sh", "-c", loop)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// reading is the value of a gateway's metrics at a time between begin and end.
type reading struct {
	begin, end time.Time
	fallback   float64
}

// poll reads the metrics of a gateway until stop is closed, and then once more. The gateway must
// never be degraded.
func (s *served) poll(t *testing.T, stop <-chan struct{}) (all []reading) {
	was := 0.0 // diana_degraded
	for last := false; ; {
		r := reading{begin: time.Now()}
		degraded, fallback, err := s.lateness()
		r.end, r.fallback = time.Now(), fallback
		switch {
		case err != nil:
			t.Error(err)
			return all
		case degraded > was:
			t.Errorf("diana_degraded of the gateway at %s is %v at %v, and Redis is well", s.url, degraded, r.end.Format("05.000"))
		}
		was = degraded
		if all = append(all, r); last {
			return all
		}
		select {
		case <-stop:
			last = true
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lateness returns two metrics of one scrape.
func (s *served) lateness() (degraded, fallback float64, err error) {
	r, err := http.Get(s.admin + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, 0, err
	}
	degraded, err = metricIn(page, "diana_degraded")
	fallback, noFallback := metricIn(page, "diana_fallback_total")
	return degraded, fallback, errors.Join(err, noFallback)
}

// fallbacks returns how many requests a gateway evaluated without Redis within [from, to), or a few
// more: those between the last reading before and the first one after.
func fallbacks(readings []reading, from, to time.Time) int {
	if len(readings) == 0 {
		return 0
	}
	before, after := readings[0].fallback, readings[len(readings)-1].fallback
	for _, r := range readings {
		if !r.end.After(from) {
			before = r.fallback
		}
		if !r.begin.Before(to) {
			after = r.fallback
			break
		}
	}
	return int(after - before)
}

// checkLate checks what all gateways admitted in each window: n, and those that were evaluated
// without Redis because their call was late. If exact is true, there are none of the latter.
//
// A request was certainly decided within a window if it was sent in it and reached the upstream in
// it.
func checkLate(t *testing.T, all []seen, n int, readings [][]reading, exact bool) (report string) {
	t.Helper()
	late := func(from, to time.Time) (sum int) {
		for _, own := range readings {
			sum += fallbacks(own, from, to)
		}
		return sum
	}
	ok, no := admitted(all), refused(all)
	for i := range ok {
		ok[i].answered = ok[i].arrived
	}
	begin, end := span(all)
	windows, full, over, most, mostLate := 0, 0, 0, 0, 0
	for w := begin.Truncate(time.Second); w.Before(end); w = w.Add(time.Second) {
		next := w.Add(time.Second)
		surely, perhaps := count(ok, w, next)
		decidedLate := late(w, next)
		bound := n
		if !exact {
			bound += decidedLate
		}
		windows++
		if surely > n {
			over++
		}
		if most = max(most, surely); surely > bound {
			t.Errorf("/w: %d were admitted in the window that began at %v, want at most %d; %d were evaluated without Redis",
				surely, w.Format("05"), bound, decidedLate)
		}
		mostLate = max(mostLate, decidedLate)
		if turnedAway, _ := count(no, w, next); turnedAway > 0 {
			full++
			if exact && perhaps < n {
				t.Errorf("/w: %d were admitted in a full window, want %d", perhaps, n)
			}
		}
	}
	sum := late(begin, end.Add(time.Hour))
	if bound := windows*n + sum; len(ok) > bound {
		t.Errorf("/w: %d were admitted in %d windows, want at most %d", len(ok), windows, bound)
	}
	return fmt.Sprintf("/w: %d admitted in %d windows of %d, %d of which refused some: at most %d surely in one, %d windows over the limit; %d requests of both paths evaluated without Redis, at most %d around one window",
		len(ok), windows, n, full, most, over, sum, mostLate)
}

// checkLateTokens checks what all gateways admitted of a bucket of n, n a second: its burst, what
// dripped in, and the requests that were evaluated without Redis.
func checkLateTokens(t *testing.T, all []seen, n int, readings [][]reading) (report string) {
	t.Helper()
	begin, end := span(all)
	bound := n + int(int64(n)*end.Sub(begin).Microseconds()/1e6) + 1
	for _, own := range readings {
		bound += fallbacks(own, begin, end.Add(time.Hour))
	}
	ok := len(admitted(all))
	if ok > bound {
		t.Errorf("/tb: %d were admitted, want at most %d", ok, bound)
	}
	return fmt.Sprintf("/tb: %d admitted, of at most %d", ok, bound)
}
