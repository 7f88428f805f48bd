// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
)

// liveRules have every algorithm, with limits that the requests reach.
const liveRules = `
limits:
- url: /
  rules:
  - {name: everyone, rpu: 12, burst: 30, scope: global, on_error: local}
  - {name: address, actor: ip, rpu: 8, unit: minute, algo: SW}
  - {name: device, actor: device, rpu: 3, unit: 10s, algo: SL}
  - {name: agent, actor: "header:User-Agent", rpu: 220, unit: minute, algo: W, align: first}
  - {name: page, actor: ["query:page", ip], rpu: 2, unit: minute, mode: shadow}
- url: /sample
  rules:
  - {name: slow, rpu: 3, algo: LB, queue: 4}
  - {name: slower, actor: ip, rpu: 1, algo: LB, queue: 1}
- url: /reports
  rules: [{name: reports, rpu: 2, algo: C}, {name: report, actor: "header:User-Agent", rpu: 1, algo: C, mode: shadow}]
- url: /reports/{any}
  rules: [{name: evenly, rpu: 3, algo: LB, queue: 1}]
- url: /api
  rules:
  - {name: failed, actor: "header:User-Agent", rpu: 4, unit: minute, algo: SW, charge: [401]}
  - {name: dear, rpu: 40, unit: minute, cost: 3, actor: ["header:User-Agent", ip], overrides: {10.0.0.0/25: {rpu: 5}}, except: [10.0.0.0/28]}
- url: POST /login
  rules: [{name: logins, actor: ip, rpu: 2, unit: hour}]
- url: /img/{any}
  rules: [{name: pictures, rpu: 0}]
`

// answered answers requests behind a limiter, at their times under fake time. It returns the
// outcome of each request and the counts of each rule.
func answered(t *testing.T, yaml string, requests []madeRequest) (outcomes []simulate.Outcome, counts []diana.RuleStatus) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		loaded, err := command.Vocabulary().Parse("live.yaml", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		limiter, err := diana.Options{Vocabulary: command.Vocabulary(), Logger: logger}.New(loaded)
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		outcomes = make([]simulate.Outcome, len(requests))
		for i := range requests {
			time.Sleep(time.Until(requests[i].at))
			go func() {
				r, o := &requests[i], &outcomes[i]
				came := time.Now()
				upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					o.Allowed, o.Delayed = true, time.Since(came)
					time.Sleep(r.lasted)
					w.WriteHeader(r.status)
				})
				answer := httptest.NewRecorder()
				limiter.Handler(upstream).ServeHTTP(answer, r.http(t))
				o.Evaluated = true
				if retry, err := strconv.Atoi(answer.Header().Get("Retry-After")); err == nil {
					o.RetryAfter = time.Duration(retry) * time.Second
				}
			}()
			synctest.Wait() // so that they come one after another, also at the same moment
		}
		time.Sleep(time.Hour)
		counts = limiter.Status().Rules
	})
	return outcomes, counts
}

// http returns the request as net/http would read it.
func (r *madeRequest) http(t *testing.T) *http.Request {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: host\r\nUser-Agent: %s\r\n", r.method, r.target, r.agent)
	if r.device != "" {
		text += "X-Device-Id: " + r.device + "\r\n"
	}
	h, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text + "\r\n")))
	if err != nil {
		t.Error(err)
	}
	h.RemoteAddr = "[" + r.client + "]:1234"
	if !strings.Contains(r.client, ":") {
		h.RemoteAddr = r.client + ":1234"
	}
	return h.WithContext(t.Context())
}

// replayed reads a log and returns the same.
func replayed(t *testing.T, yaml, log string) (outcomes []simulate.Outcome, report *simulate.Report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	loaded, err := command.Vocabulary().Parse("live.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	count, err := simulate.NewCount(loaded, command.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	names := weblog.NewNames(slices.Collect(maps.Keys(plan.Headers(loaded.Limits, &loaded.Identity))))
	logs, err := weblog.Open([]string{file}, nil, names, func(b weblog.Broken) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	c := simulate.NewComparison(names, count)
	for e := logs.Next(); e != nil; e = logs.Next() {
		o, err := c.Play(e)
		if err != nil {
			t.Fatal(err)
		}
		if o[0].RetryAfter > 0 { // as the header of the answer has it
			o[0].RetryAfter = max((o[0].RetryAfter + time.Second - 1).Truncate(time.Second), time.Second)
		}
		outcomes = append(outcomes, o[0])
	}
	return outcomes, c.Report(logs.Files)
}

// diana replay decides each request of a log as diana serve decided the same request at the same
// time, under every rule.
func TestReplayIsLive(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		name  string
		write func(*madeRequest) string
		trim  func(*madeRequest) // leaves what the line tells
	}{
		{"JSON", (*madeRequest).json, func(r *madeRequest) {
			r.lasted += 500 * time.Nanosecond // so that none ends when another begins
		}},
		{"combined", (*madeRequest).combined, func(r *madeRequest) {
			r.at, r.lasted, r.device = r.at.Truncate(time.Second), 0, ""
		}},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			made := newMadeLog(7, 40*time.Millisecond)
			var requests []madeRequest
			var log strings.Builder
			for range 4000 {
				r := made.next()
				form.trim(&r)
				requests = append(requests, r)
				log.WriteString(form.write(&r))
			}
			want, counts := answered(t, liveRules, requests)
			got, report := replayed(t, liveRules, log.String())
			if len(got) != len(want) {
				t.Fatalf("%d requests, want %d", len(got), len(want))
			}
			wrong := 0
			for i := range want {
				if got[i] != want[i] {
					if wrong++; wrong < 10 {
						t.Errorf("request %d, %s %s: replay says %+v, live it was %+v", i, requests[i].method, requests[i].target, got[i], want[i])
					}
				}
			}
			for i, r := range report.Config.Rules {
				t.Logf("%s: %+v", r.Name, countsOf(r.RuleStatus))
				if countsOf(r.RuleStatus) != countsOf(counts[i]) {
					t.Errorf("%s: replay says %+v, live it was %+v", r.Name, countsOf(r.RuleStatus), countsOf(counts[i]))
				}
				bites := r.Refused+r.ShadowRefused > 0
				if told := form.name == "JSON" || r.Algorithm != "C"; told && !bites {
					t.Errorf("%s refuses nothing, so nothing is shown", r.Name)
				}
			}
		})
	}
}

// ruleCounts are the decisions of a rule by their kind.
type ruleCounts struct{ Allowed, Refused, ShadowRefused, Delayed int64 }

func countsOf(r diana.RuleStatus) ruleCounts {
	return ruleCounts{r.Allowed, r.Refused, r.ShadowRefused, r.Delayed}
}
