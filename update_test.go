// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// parsed parses a configuration.
func parsed(t testing.TB, yaml string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func update(t *testing.T, l *diana.Limiter, yaml string) {
	t.Helper()
	if err := l.Update(parsed(t, yaml)); err != nil {
		t.Fatal(err)
	}
}

// Update keeps the counters of a rule that keeps its name.
func TestUpdate(t *testing.T) {
	t.Parallel()
	text := func(rpu int) string {
		return fmt.Sprintf("{url: /, rules: [{name: r, unit: hour, rpu: %d, algo: W, align: first}]}", rpu)
	}
	l := limiter(t, text(3))
	if got := count(t, l, 10, diana.Request{}); got != 3 {
		t.Fatalf("%d allowed, want 3", got)
	}
	version := l.Status().Config.Version
	update(t, l, text(5))
	if got := count(t, l, 10, diana.Request{}); got != 2 {
		t.Errorf("%d more allowed after the limit went from 3 to 5, want 2", got)
	}
	s := l.Status().Config
	if s.Version == version || !s.LastReloadSuccessful || s.LastReloadSuccess != s.Since {
		t.Errorf("%+v", s)
	}
}

// Update and Take at the same time lose no count, and no request is evaluated by parts of two
// configurations.
func TestUpdateUnderLoad(t *testing.T) {
	t.Parallel()
	const limit = 1000
	text := func(version int) string {
		return fmt.Sprintf(`
limits:
- url: /
  rules:
  - {name: kept, unit: hour, rpu: %d, algo: W, align: first}
  - {name: v%[2]d first, rpu: 1000000}
- url: /a
  rules: [{name: v%[2]d second, rpu: 1000000}]
`, limit, version)
	}
	l := limiter(t, text(0))
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range limit {
				d, err := l.Take(context.Background(), diana.Request{Path: "/a"})
				if err != nil || len(d.Verdicts) != 3 {
					t.Errorf("%v, %d verdicts", err, len(d.Verdicts))
					return
				}
				if a, b := d.Verdicts[1].Rule.Name, d.Verdicts[2].Rule.Name; strings.Fields(a)[0] != strings.Fields(b)[0] {
					t.Errorf("rules %q and %q on one request", a, b)
				}
				if d.Allowed {
					allowed.Add(1)
				}
				d.Done()
			}
		})
	}
	for worker := range 2 {
		wg.Go(func() {
			for i := range 100 {
				if err := l.Update(parsed(t, text(2*i+worker))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := allowed.Load(); n != limit {
		t.Errorf("%d allowed, want %d", n, limit)
	}
	if s := l.Status().Rules[0]; s.Allowed != limit || s.Refused != 3*limit {
		t.Errorf("%d counted as allowed and %d as refused, want %d and %d", s.Allowed, s.Refused, limit, 3*limit)
	}
}

// A configuration that cannot be applied changes nothing.
func TestUpdateWithAnInvalidConfiguration(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{name: old, unit: hour, rpu: 3, algo: W, align: first}]}")
	if got := count(t, l, 1, diana.Request{}); got != 1 {
		t.Fatal("refused")
	}
	before := l.Config()
	twice := parsed(t, "{url: /, rules: [{name: new, rpu: 1}]}")
	twice.Limits = append(twice.Limits, twice.Limits...)
	for _, bad := range []*config.Config{
		twice,
		parsed(t, "redis: {url: 'redis://127.0.0.1:1', password: 'file:/absent'}\nlimits: [{url: /, rules: [{name: new, rpu: 1}]}]"),
		parsed(t, "limits: [{url: /, divert: {file: /absent}, rules: [{name: new, rpu: 1}]}]"),
	} {
		if err := l.Update(bad); err == nil {
			t.Errorf("no error for %v", bad.Limits)
		}
		if l.Config() != before || l.Status().Rules[0].Name != "old" {
			t.Errorf("the configuration is %+v", l.Config())
		}
	}
	if got := count(t, l, 10, diana.Request{}); got != 2 {
		t.Errorf("%d more allowed, want 2", got)
	}
}

// A program can build its configuration without YAML.
func TestUpdateWithAConfigurationMadeByHand(t *testing.T) {
	t.Parallel()
	made := func(n int64) *config.Config {
		return &config.Config{Limits: []rule.Entry{{
			URL: rule.Pattern{Path: "/"},
			Rules: []rule.Rule{{
				Name: "r", Algorithm: limit.FixedWindow(),
				Actor: []rule.Actor{{Kind: "account"}},
				Limit: limit.Limit{N: n, Unit: time.Hour, AlignFirst: true},
			}},
		}}}
	}
	l, err := quiet.New(made(2))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ann := diana.Request{Path: "/a", Actors: map[string]string{"account": "ann"}}
	if got := count(t, l, 10, ann); got != 2 {
		t.Errorf("%d allowed, want 2", got)
	}
	if err := l.Update(made(3)); err != nil {
		t.Fatal(err)
	}
	if got := count(t, l, 10, ann); got != 1 {
		t.Errorf("%d more allowed, want 1", got)
	}
}

// Update changes Redis: the new one decides, and the connection to the old one is closed.
func TestUpdateOfRedis(t *testing.T) {
	t.Parallel()
	from, to := redistest.Start(t), redistest.Start(t)
	text := func(r *redistest.Server) string {
		return fmt.Sprintf("redis: {url: %q, timeout: 10s}\nlimits: [{url: /, rules: [{unit: day, rpu: 5, scope: global}]}]", r.URL())
	}
	l := limiter(t, text(from))
	if err := l.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*redistest.Server{to, from} {
		update(t, l, text(r))
		testproc.Eventually(t, connected(l)) // at once, unless the machine is busy
		if d := ask(t, l, diana.Request{}); d.Degraded || !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	testproc.Eventually(t, func() bool { return clients(to) == 0 })

	// While Update waits for a Redis that does not answer, the old one decides.
	to.Freeze()
	old, updated := l.Config(), make(chan error)
	go func() { updated <- l.Update(parsed(t, text(to))) }()
	asked := 0
	for l.Config() == old {
		if d := ask(t, l, diana.Request{}); d.Degraded && l.Config() == old {
			t.Error("the old Redis does not decide")
		}
		asked++
	}
	if err := <-updated; err != nil || asked == 0 {
		t.Errorf("%v, after %d requests", err, asked)
	}
	if !ask(t, l, diana.Request{}).Degraded {
		t.Error("a Redis that does not answer has decided")
	}
	to.Thaw()
	testproc.Eventually(t, connected(l))
}

// Update fails on a Limiter that follows a file, and after Close.
func TestUpdateErrors(t *testing.T) {
	t.Parallel()
	const text = "{url: /, rules: [{name: old, rpu: 1}]}"
	file := newFolder(t).write("diana.yaml", text)
	for name, l := range map[string]*diana.Limiter{
		"follows " + file: open(t, quiet, file),
		"closed":          limiter(t, text),
	} {
		if name == "closed" {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		err := l.Update(parsed(t, "{url: /, rules: [{name: new, rpu: 1}]}"))
		if err == nil || !strings.Contains(err.Error(), name) || l.Status().Rules[0].Name != "old" {
			t.Errorf("%v, and the configuration is %+v; want an error that has %q", err, l.Status(), name)
		}
	}
}

// New returns before Redis or a remote configuration has answered. This server accepts connections and
// never answers.
func TestNewDoesNotWait(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	var j journal
	c := parsed(t, fmt.Sprintf("redis: {url: 'redis://%s'}\nlimits: [{url: /, rules: [{rpu: 5, scope: global}]}]", hung.Addr()))
	c.Remote = &config.Remote{URL: "unknown://host/key"}
	l, err := j.options().New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := l.Ready(ended); err == nil {
		t.Error("it is ready without Redis")
	}
	if d := ask(t, l, diana.Request{}); !d.Allowed || !d.Degraded {
		t.Errorf("%+v", d)
	}
	if s := l.Status().Config; s.Remote != nil || !strings.Contains(j.String(), "is not followed") {
		t.Errorf("%+v, and the log is\n%s", s, j.String())
	}
}

// OnChange gets both configurations, and replaces the line in the log.
func TestOnChange(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var got []string
	l, err := diana.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnChange: func(before, after *config.Config) {
			got = append(got, fmt.Sprint(before.Limits[0].Rules[0].Limit.N, " to ", after.Limits[0].Rules[0].Limit.N))
		},
	}.New(parsed(t, "url: /\nrules: [{rpu: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	update(t, l, "url: /\nrules: [{rpu: 2}]")
	if strings.Join(got, ", ") != "1 to 2" || log.Len() > 0 {
		t.Errorf("OnChange got %q, and the log %q", got, log.String())
	}
}
