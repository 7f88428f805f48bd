// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/live"
	"github.com/diana-limiter/diana/internal/testproc"
)

const topRules = `
- {url: /a, rules: [{name: by key, actor: "header:X-Key", rpu: 1, unit: hour, algo: W}]}
- {url: /b, rules: [{name: all, rpu: 2, unit: hour, algo: W}]}
`

// ask sends n requests with a key.
func askKey(t *testing.T, url, key string, n int) {
	t.Helper()
	for range n {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Key", key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
}

// A client that follows the gateway sees each decision once, the most refused actor first, and changes of the
// configuration. The stream ends when the gateway stops.
func TestLive(t *testing.T) {
	t.Parallel()
	g := serve(t, "limits:\n"+topRules, newSite(t, nil).upstream.URL)
	answer, err := http.Get(g.admin + "/api/v1/live/stream?rules=1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	askKey(t, g.url+"/a", "ann", 30)
	askKey(t, g.url+"/a", "<b>bob</b>", 11)
	askKey(t, g.url+"/b", "", 12)
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	var s live.Snapshot
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		s = live.Snapshot{}
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%.200s: %v", data, err)
		}
		refused := int64(0)
		for _, n := range s.Total.Refused {
			refused += n
		}
		if refused >= 49 {
			if refused != 29+10+10 {
				t.Errorf("%d refused, want 49", refused)
			}
			if s.Rules[0].RefusedPerSecond == 0 { // now the totals say which rule is the first one
				break
			}
		}
	}
	if len(s.TopRefused) != 3 || s.TopRefused[0].Actor != "header:X-Key=3:ann;" || s.TopRefused[0].Count != 29 || !s.TopRefused[0].Exact {
		t.Errorf("most refused: %+v", s.TopRefused)
	}
	if len(s.Rules) != 1 || s.RulesTotal != 2 || s.Rules[0].Name != "by key" || s.Rules[0].Refused != 39 || s.Rules[0].Allowed != 2 {
		t.Errorf("rules: %+v of %d", s.Rules, s.RulesTotal)
	}
	if n := s.Rules[0].Remaining; n == nil || *n != 0 || s.Rules[0].RemainingActor != "header:X-Key=3:ann;" {
		t.Errorf("tightest: %v of %s", n, s.Rules[0].RemainingActor)
	}
	if s.Gateway.MaxKeys == 0 || s.Gateway.Keys != 3 || s.Gateway.Memory < 1<<20 || len(s.Events) != 1 || s.Events[0].Kind != "start" {
		t.Errorf("%+v, events %+v", s.Gateway, s.Events)
	}
	g.reload(t, "limits:\n"+strings.Replace(topRules, "rpu: 2", "rpu: 3", 1))
	if !testproc.Becomes(func() bool {
		var now live.Snapshot
		_ = json.Unmarshal(g.tell(t, "/api/v1/live?q=ALL&rules=5"), &now)
		return len(now.Events) == 2 && now.Events[0].Kind == "config" && strings.Contains(now.Events[0].Text, "2") &&
			now.RulesTotal == 1 && now.Rules[0].Limit == 3
	}) {
		t.Errorf("after a reload: %s", g.tell(t, "/api/v1/live?q=all&rules=5"))
	}
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"top", "--admin", g.admin}, &out, &errs); status != command.StatusGood || errs.Len() > 0 || !strings.Contains(out.String(), "header:X-Key=3:ann;") {
		t.Errorf("top: %d %s%s", status, out.String(), errs.String())
	}
	g.stop(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
		}
	}()
	select {
	case <-ended:
	case <-time.After(testproc.Patience):
		t.Error("the stream goes on after the gateway has stopped")
	}
}

// The table neutralises what clients choose, and fits the terminal.
func TestTopTable(t *testing.T) {
	t.Parallel()
	s := &live.Snapshot{TopRefused: []live.Refused{{Rule: "r", Actor: "\x1b]0;x\x07", Recent: 3}, {Rule: "r2", Recent: 2, RecentExact: true}}}
	for i := range 40 {
		s.Rules = append(s.Rules, live.Rule{Name: fmt.Sprint("rule ", i, strings.Repeat("x", 100)), Limit: 5, UnitSeconds: 60})
	}
	text := topTable(s, 24)
	if strings.Contains(text, "\x1b") || !strings.Contains(text, `"\x1b]0;x\a"`) || !strings.Contains(text, "~3") {
		t.Errorf("%q", text)
	}
	lines := strings.Split(strings.TrimRight(fitted(text, 30, 10), "\n"), "\n")
	for _, line := range lines {
		if len([]rune(line)) > 30 {
			t.Errorf("%q is wider than 30", line)
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d lines, want 9", len(lines))
	}
}

// Rules of adaptive concurrency have the latency and what they shed, if there are some.
func TestTopOfAdaptiveRules(t *testing.T) {
	t.Parallel()
	s := &live.Snapshot{Rules: []live.Rule{{Name: "plain"}}}
	if text := topTable(s, 0); strings.Contains(text, "SHED") {
		t.Errorf("without such a rule:\n%s", text)
	}
	s.Rules = append(s.Rules, live.Rule{Name: "new", Shed: map[string]int64{"": 0}},
		live.Rule{Name: "known", Limit: 17, Baseline: 0.0152345, Shed: map[string]int64{"normal": 3, "batch": 12}})
	_, table, _ := strings.Cut(topTable(s, 0), "\n\n\n")
	const want = `RULE   LIMIT  ALGO  ALLOWED/S  REFUSED/S  ALLOWED  REFUSED  LATENCY                SHED
plain  0                  0.0        0.0        0        0
new    0                  0.0        0.0        0        0        -                   0
known  17                 0.0        0.0        0        0  15.23ms  batch 12, normal 3
`
	if table != want {
		t.Errorf("got\n%swant\n%s", table, want)
	}
}

// The table stays while the gateway is away. A gateway that was never there, and an
// answer that will not change, end the command.
func TestTopScreen(t *testing.T) {
	t.Parallel()
	gone := errors.New("connection refused")
	for _, c := range []struct {
		name    string
		answers []error // nil: a snapshot
		ends    error
		shown   int // tables
	}{
		{"away", []error{nil, gone, gone, nil}, nil, 4},
		{"never there", []error{gone, nil}, gone, 0},
		{"wrong token", []error{nil, lastAnswer{gone}, nil}, lastAnswer{gone}, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tick := make(chan time.Time, len(c.answers))
		var out bytes.Buffer
		asked := 0
		screen := topScreen{
			output: &command.Output{Out: &out, Err: io.Discard},
			size:   func() (int, int) { return 60, 10 },
			ask: func(context.Context, int) (*live.Snapshot, error) {
				if asked == len(c.answers) {
					cancel()
					return nil, ctx.Err()
				}
				err := c.answers[asked]
				asked++
				tick <- time.Time{}
				return &live.Snapshot{}, err
			},
		}
		err := screen.follow(ctx, tick)
		if n := strings.Count(out.String(), "\x1b[H\x1b[J"); !errors.Is(err, c.ends) || n != c.shown {
			t.Errorf("%s: %v after %d tables, want %v after %d", c.name, err, n, c.ends, c.shown)
		}
		if away := strings.Count(out.String(), "NO ANSWER since "); c.name == "away" && away != 2 {
			t.Errorf("%d of 4 tables say that the gateway is away:\n%s", away, out.String())
		}
		cancel()
	}
}

// Units have no parts that are 0.
func TestShortDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{time.Second: "1s", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 24 * time.Hour: "24h", 70 * time.Minute: "1h10m", 10 * time.Minute: "10m", time.Hour + time.Second: "1h0m1s", 500 * time.Millisecond: "500ms"} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// Cells of Chinese characters are twice as wide.
func TestColumns(t *testing.T) {
	t.Parallel()
	if got, want := command.Columns([][]string{{"登录", "1"}, {"login", "22"}, {"e\u0301", ""}}, 1, 1), "登录    1\nlogin  22\ne\u0301\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for most, want := range map[int]string{0: "", 1: "", 2: "登", 3: "登", 4: "登录", 5: "登录a", 9: "登录a"} {
		if got := command.Clipped("登录a", most); got != want {
			t.Errorf("%d cells: %q, want %q", most, got, want)
		}
	}
}
