// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var (
	freezes   = flag.String("freezes", "1.5s", "how long Redis hangs in TestFreezeChargesOnce, one after another, as in 500ms,3s")
	underThem = flag.Int("freeze-gateways", 3, "how many gateways use Redis in TestFreezeChargesOnce")
	kills     = flag.Int("kills", 1, "how often TestKillChargesOnce kills Redis, for each way to write its file")
)

// Whatever Redis' hanging interrupts, each request is charged what it cost, once and under each of its rules.
func TestFreezeChargesOnce(t *testing.T) {
	t.Parallel()
	for text := range strings.SplitSeq(*freezes, ",") {
		pause, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) {
			late := chargeOnce(t, redistest.Start(t), 0, func(r *redistest.Server) {
				r.Freeze()
				time.Sleep(pause)
				r.Thaw()
			})
			if pause > time.Second && late == 0 {
				t.Error("nothing was debited late")
			}
		})
	}
}

// A Redis that is killed returns with what its file has. If it writes each command before its answer, nothing is
// lost. If it writes once a second, the last two seconds may be lost, and nothing is charged twice.
func TestKillChargesOnce(t *testing.T) {
	t.Parallel()
	for _, fsync := range []string{"always", "everysec"} {
		lost := time.Duration(0)
		if fsync == "everysec" {
			lost = 2 * time.Second
		}
		for range *kills {
			t.Run(fsync, func(t *testing.T) {
				chargeOnce(t, redistest.Start(t, "--appendonly", "yes", "--appendfsync", fsync), lost, func(r *redistest.Server) {
					r.Kill()
					time.Sleep(time.Second)
					r.Restart()
				})
			})
		}
	}
}

// chargeOnce harms Redis under gateways with 28 rules, four for each path. Redis may lose what it has done for
// some time before. It returns what was debited late.
func chargeOnce(t *testing.T, r *redistest.Server, lost time.Duration, harm func(*redistest.Server)) (late int64) {
	const (
		each  = 1000 // the limit of an actor
		paths = 7
	)
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(rand.N(20 * time.Millisecond)) // the work of the upstream
		w.Header().Set("X-Cost", strconv.Itoa(1+rand.IntN(200)))
	})
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 50ms}\nlimits:\n", r.URL())
	algorithms := []string{"W", "SW", "TB", "SL"}
	for p := range paths {
		yaml += fmt.Sprintf("- url: /%d\n  rules:\n", p)
		for _, a := range algorithms {
			yaml += fmt.Sprintf("  - {name: %s %d, actor: \"header:X-Actor\", algo: %[1]s, unit: 72h, rpu: %[3]d, scope: global, cost: {answer: \"header:X-Cost\", reserve: 100}}\n", a, p, each)
		}
	}
	var gateways []*served
	for range *underThem {
		gateways = append(gateways, serve(t, yaml, s.upstream.URL))
	}
	degraded := func(want bool) {
		t.Helper()
		for _, g := range gateways {
			if !testproc.Becomes(func() bool { return g.status(t).Degraded == want }) {
				t.Fatalf("degraded is not %v", want)
			}
		}
	}
	degraded(false)

	var mu sync.Mutex
	spent := map[int64]int64{}     // what each actor's request cost
	ended := map[int64]time.Time{} // when it has ended
	var next atomic.Int64
	var stopped atomic.Bool
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			for !stopped.Load() {
				n := next.Add(1)
				r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("%s/%d", gateways[client%len(gateways)].url, n%paths), http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Actor", strconv.FormatInt(n, 10))
				answer, err := s.client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				cost, costErr := strconv.ParseInt(answer.Header.Get("X-Cost"), 10, 64)
				if err != nil || costErr != nil || answer.StatusCode != http.StatusOK {
					t.Error(answer.Status, err, costErr)
					return
				}
				mu.Lock()
				spent[n], ended[n] = cost, time.Now()
				mu.Unlock()
				time.Sleep(rand.N(100 * time.Millisecond)) // so that the check of the actors is short
			}
		})
	}
	begin := time.Now()
	testproc.Eventually(t, func() bool { return next.Load() > 200 && time.Since(begin) > lost })
	safe := time.Now().Add(-lost) // what has ended before is not lost
	harm(r)
	degraded(false)
	stopped.Store(true)
	clients.Wait()
	degraded(false)

	file := filepath.Join(t.TempDir(), "diana.yaml")
	patient := strings.Replace(yaml, "timeout: 50ms", "timeout: 10s", 1) // to read what is counted, however busy the machine is
	if err := os.WriteFile(file, []byte(patient), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := diana.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	testproc.Eventually(t, func() bool { return !l.Status().Degraded })
	charged := func(rule string, n int64) int64 {
		_, verdicts, err := l.PeekActor(context.Background(), rule, strconv.FormatInt(n, 10))
		if err != nil || len(verdicts) != 1 {
			t.Fatal(rule, n, verdicts, err)
		}
		return each - verdicts[0].Remaining
	}
	wrong, sum := 0, int64(0)
	for n, cost := range spent {
		for _, a := range algorithms {
			rule := fmt.Sprintf("%s %d", a, n%paths)
			right := func() bool {
				used := charged(rule, n)
				return used == cost || used < cost && lost > 0 && ended[n].After(safe)
			}
			if right() || testproc.Becomes(right) { // debts may still be on their way
				continue
			}
			used := charged(rule, n)
			if wrong++; wrong == 10 {
				t.Fatal("and more")
			}
			sum += used - cost
			t.Errorf("actor %d, rule %s: %d are charged, want %d", n, rule, used, cost)
		}
	}
	unknown := int64(0)
	for _, g := range gateways {
		st := g.status(t)
		late, unknown = late+st.LateDebits, unknown+st.UnknownCalls
	}
	if unknown > 0 && lost == 0 {
		t.Errorf("the outcome of %d calls is unknown", unknown)
	}
	t.Logf("%d requests, %+d charged in excess; %d were debited late, %d calls are unknown", len(spent), sum, late, unknown)
	return late
}
