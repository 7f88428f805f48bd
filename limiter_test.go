// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// quiet are options that discard the log.
var quiet = diana.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}

// limiter returns a Limiter for a configuration.
func limiter(t testing.TB, yaml string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	l, err := quiet.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// ask evaluates a request, ends it, and returns the fields of the Decision.
func ask(t testing.TB, l *diana.Limiter, r diana.Request) diana.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	d.Done()
	return d
}

func device(path, id string) diana.Request {
	return diana.Request{Path: path, Actors: map[string]string{"device": id}}
}

// count returns how many of n requests are allowed.
func count(t testing.TB, l *diana.Limiter, n int, r diana.Request) (allowed int) {
	t.Helper()
	for range n {
		if ask(t, l, r).Allowed {
			allowed++
		}
	}
	return allowed
}

func TestFourWaysToLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules: [{actor: all, unit: hour, rpu: 40}]
- url: /by/account
  rules: [{actor: account, unit: hour, rpu: 3}]
- url: /by/device
  rules: [{actor: device, unit: hour, rpu: 2}]
- url: /resource
  rules: [{unit: hour, rpu: 5}]
`)
		for _, tc := range []struct {
			name string
			r    diana.Request
			want int
		}{
			{"account", diana.Request{Path: "/by/account", Actors: map[string]string{"account": "ann"}}, 3},
			{"other account", diana.Request{Path: "/by/account", Actors: map[string]string{"account": "bob"}}, 3},
			{"account by IP", diana.Request{Path: "/by/account", Actors: map[string]string{"ip": "192.0.2.1"}}, 3},
			{"device", device("/by/device", "d1"), 2},
			{"resource", device("/resource/x", "d1"), 5},
			{"resource, anyone", device("/resource/y", "d2"), 0},
			{"all that is left", device("/elsewhere", "d3"), 40 - 3 - 3 - 3 - 2 - 5},
			{"nothing is left", device("/by/device", "d4"), 0},
		} {
			if got := count(t, l, 50, tc.r); got != tc.want {
				t.Errorf("%s: %d allowed, want %d", tc.name, got, tc.want)
			}
		}
	})
}

// A request that any rule refuses is charged to none.
func TestRefusedIsChargedToNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules: [{unit: hour, rpu: 20, algo: W}]
- url: /sample
  rules: [{unit: hour, rpu: 5, algo: SL}]
`)
		if got := count(t, l, 1000, device("/sample", "x")); got != 5 {
			t.Errorf("/sample: %d allowed, want 5", got)
		}
		if got := count(t, l, 1000, device("/", "x")); got != 15 {
			t.Errorf("/: %d allowed after 5 on /sample, want 15", got)
		}
	})
}

func TestDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules:
    - {name: wide, unit: minute, rpu: 100}
    - {name: shadow, unit: minute, rpu: 1, mode: shadow}
- url: /login
  rules: [{name: narrow, actor: device, unit: minute, rpu: 2}]
`)
		var d diana.Decision
		for range 3 {
			if d.Done(); d.Verdicts != nil {
				t.Error("verdicts outlive Done")
			}
			var err error
			if d, err = l.Take(context.Background(), device("/login", "x")); err != nil {
				t.Fatal(err)
			}
		}
		if d.Allowed || d.RetryAfter != 30*time.Second {
			t.Errorf("the third: %+v, want a refusal for 30 s", d)
		}
		var got []string
		for _, v := range d.Verdicts {
			got = append(got, fmt.Sprintf("%s allowed=%v refused=%v left=%d", v.Rule.Name, v.Allowed, v.Refused(), v.Remaining))
		}
		want := "wide allowed=true refused=false left=98, shadow allowed=false refused=false left=0, narrow allowed=false refused=true left=0"
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("verdicts: %s\nwant: %s", s, want)
		}
		d.Done()
		d.Done()

		counted := map[string]ruleCounts{}
		for _, r := range l.Status().Rules {
			counted[r.Name] = countsOf(r)
		}
		for name, want := range map[string]ruleCounts{
			"wide":   {Allowed: 2},
			"shadow": {Allowed: 1, ShadowRefused: 2},
			"narrow": {Allowed: 2, Refused: 1},
		} {
			if counted[name] != want {
				t.Errorf("%s: %+v, want %+v", name, counted[name], want)
			}
		}
		if d := ask(t, l, diana.Request{Path: "//x"}); !d.Allowed {
			t.Error("a request under the wide rule alone was refused")
		}
	})
}

func TestNoRule(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /limited, rules: [{rpu: 0}]}")
	if d := ask(t, l, diana.Request{Path: "/free"}); !d.Allowed {
		t.Error("a request that no rule covers was refused")
	}
	if d := ask(t, l, diana.Request{Path: "/limited"}); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("rpu 0: %+v", d)
	}
}

// A second Done must not end another request.
func TestDoneTwice(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 1, algo: C}]}")
	for range 100 {
		d, _ := l.Take(context.Background(), diana.Request{})
		if !d.Allowed {
			t.Fatal("the slot is not free")
		}
		copied := d
		d.Done()
		e, _ := l.Take(context.Background(), diana.Request{})
		if !e.Allowed {
			t.Fatal("the slot is not free after Done")
		}
		copied.Done()
		if f, _ := l.Take(context.Background(), diana.Request{}); f.Allowed {
			t.Fatal("a second Done released the slot of another request")
		}
		e.Done()
	}
}

func TestLeakyBucketWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules: [{unit: hour, rpu: 100, algo: W}]
- url: /smooth
  rules: [{name: smooth, rpu: 10, algo: LB, queue: 3}]
`)
		start := time.Now()
		var wg sync.WaitGroup
		var allowed, refused atomic.Int64
		for range 6 {
			wg.Go(func() {
				d, err := l.Take(context.Background(), device("/smooth", "x"))
				if err != nil {
					t.Error(err)
				}
				defer d.Done()
				if !d.Allowed {
					refused.Add(1)
					if since := time.Since(start); since != 0 {
						t.Errorf("refused after %v, want at once", since)
					}
					return
				}
				allowed.Add(1)
				if d.Delayed != time.Since(start) || d.Delayed%(100*time.Millisecond) != 0 {
					t.Errorf("delayed %v after %v", d.Delayed, time.Since(start))
				}
			})
		}
		wg.Wait()
		if allowed.Load() != 4 || refused.Load() != 2 {
			t.Errorf("%d allowed and %d refused, want 4 and 2", allowed.Load(), refused.Load())
		}
		if c := countsOf(l.Status().Rules[1]); c != (ruleCounts{Allowed: 1, Delayed: 3, Refused: 2}) {
			t.Errorf("counts %+v", c)
		}

		// A request whose context ends is counted nowhere, not even under /.
		time.Sleep(time.Second)
		ask(t, l, device("/smooth", "x"))
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		d, err := l.Take(ctx, device("/smooth", "x"))
		if !errors.Is(err, context.DeadlineExceeded) || d.Allowed {
			t.Errorf("%+v, %v, want the context's error", d, err)
		}
		d.Done()
		if got := count(t, l, 200, device("/", "x")); got != 100-5 {
			t.Errorf("%d are left under /, want 95", got)
		}
	})
}

func TestDoneReleasesSlots(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
- url: /
  rules:
    - {rpu: 3, algo: C}
    - {actor: device, rpu: 1, algo: concurrency, mode: shadow}
`)
	var inside []diana.Decision
	for range 5 {
		d, err := l.Take(context.Background(), device("/", "x"))
		if err != nil {
			t.Fatal(err)
		}
		inside = append(inside, d)
	}
	for i, d := range inside {
		if d.Allowed != (i < 3) {
			t.Errorf("request %d: allowed %v", i, d.Allowed)
		}
	}
	for i := range inside {
		inside[i].Done()
	}
	if got := count(t, l, 10, device("/", "x")); got != 10 {
		t.Errorf("%d of 10 were allowed one after another", got)
	}
}

// Without Redis a global rule decides as on_error says.
func TestGlobalWithoutRedis(t *testing.T) {
	t.Parallel()
	for onError, want := range map[string]int{"": 5, "share": 5, "local": 5, "open": 50, "closed": 0} {
		if onError != "" {
			onError = ", on_error: " + onError
		}
		l := limiter(t, "{url: /, rules: [{unit: hour, rpu: 5, scope: global"+onError+"}]}")
		if got := count(t, l, 50, diana.Request{}); got != want {
			t.Errorf("%s: %d allowed, want %d", onError, got, want)
		}
		if d := ask(t, l, diana.Request{}); !d.Degraded {
			t.Errorf("%s: the decision is not degraded", onError)
		}
		if s := l.Status(); !s.Degraded || s.DegradedSince == nil || s.Fallback != 51 {
			t.Errorf("%s: the status says degraded %v since %v, and %d requests without Redis, want 51", onError, s.Degraded, s.DegradedSince, s.Fallback)
		}
	}
	l := limiter(t, "{url: /, rules: [{rpu: 5}]}")
	ask(t, l, diana.Request{})
	if s := l.Status(); s.Degraded || s.DegradedSince != nil || s.Fallback != 0 {
		t.Error("degraded without a global rule")
	}
}

// A Limiter follows its file. A change that is not valid has no effect.
func TestFollowsTheFile(t *testing.T) {
	t.Parallel()
	// In a ConfigMap the file is a link to ..data/diana.yaml, and ..data is a link that is replaced.
	dir := t.TempDir()
	publish := func(generation, text string) {
		t.Helper()
		if err := errors.Join(
			os.Mkdir(filepath.Join(dir, generation), 0o755),
			os.WriteFile(filepath.Join(dir, generation, "diana.yaml"), []byte(text), 0o644),
			os.Symlink(generation, filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")),
		); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "diana.yaml")
	if err := os.Symlink("..data/diana.yaml", file); err != nil {
		t.Fatal(err)
	}
	publish("1", "{url: /, rules: [{name: r, unit: hour, rpu: 3, algo: W, align: first}]}")
	l, err := quiet.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := count(t, l, 10, diana.Request{}); got != 3 {
		t.Fatalf("%d allowed, want 3", got)
	}
	version := l.Status().Config.Version

	publish("2", "{url: /, rules: [{name: r, unit: hour, rpu: 5, algo: W, align: first}]}")
	testproc.Eventually(t, func() bool { return l.Status().Config.Version != version })
	if got := count(t, l, 10, diana.Request{}); got != 2 {
		t.Errorf("%d more allowed after the limit went from 3 to 5, want 2", got)
	}
	version = l.Status().Config.Version

	publish("3", "{url: /, rules: [{name: r, unit: hour, rpu: many}]}")
	testproc.Eventually(t, func() bool { return l.Reloads()[diana.Reload{Source: "file", Result: "error"}] == 1 })
	if got := l.Status(); got.Config.Version != version || len(got.Rules) != 1 || got.Rules[0].Allowed != 5 {
		t.Errorf("after a bad change: %+v", got)
	}
	var bad config.Errors
	if err := l.Reload(); !errors.As(err, &bad) {
		t.Errorf("Reload of a bad file: %v", err)
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(); err == nil {
		t.Error("Reload of a file that is gone succeeded")
	}
	if err := os.WriteFile(file, []byte("{url: /, rules: [{name: new, rpu: 1}]}"), 0o644); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return l.Status().Rules[0].Name == "new" })
}

// A file that changes, is reloaded, and changes back is followed. The watcher compares the file with the
// configuration in force, and not with the text that it has read itself.
func TestFileChangesBack(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	text := func(name string) string { return "{url: /, rules: [{name: " + name + ", rpu: 1}]}" }
	l := open(t, quiet, f.write("diana.yaml", text("old")))
	for range 3 {
		f.write("diana.yaml", text("new"))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		f.write("diana.yaml", text("old"))
		testproc.Eventually(t, func() bool { return l.Status().Rules[0].Name == "old" })
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	if _, err := diana.Open(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("url: /\nrules:\n  - rpu: x\n    unit: y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var errs config.Errors
	if _, err := diana.Open(file); !errors.As(err, &errs) || len(errs) != 2 {
		t.Errorf("bad file: %v, want two errors", err)
	}
}

// A program can add an algorithm, an actor and a unit without a change of Diana.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	v := config.DefaultVocabulary()
	v.Algorithms = append(v.Algorithms, limit.Algorithm{
		Names: []string{"EO", "every other"},
		New:   func(limit.Limit) (limit.Meter, error) { return everyOther{}, nil },
	})
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "tenant"})
	v.Units["week"] = 7 * 24 * time.Hour
	c, err := v.Parse("x", []byte(`
- url: /
  rules: [{actor: tenant, rpu: 1, algo: Every Other}]
- url: /weekly
  rules: [{actor: tenant, rpu: 1, unit: week}]
`))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Vocabulary: v}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := diana.Request{Path: "/weekly", Actors: map[string]string{"tenant": "t"}}
	if !ask(t, l, r).Allowed {
		t.Error("the first was refused")
	}
	for i := range 2 {
		if got := ask(t, l, r); got.Allowed || i == 1 && got.RetryAfter < 6*24*time.Hour {
			t.Errorf("request %d: %+v", i+1, got)
		}
	}
}

// everyOther is a Meter that allows every other request.
type everyOther struct{}

func (everyOther) StateVersion() string                    { return "1" }
func (everyOther) Cells(limit.State, int64) int            { return 1 }
func (everyOther) Take(s limit.State, _, _ int64) uint64   { s.Cells[0]++; return 1 - s.Head }
func (everyOther) Refund(s limit.State, _, _ int64) uint64 { return s.Head }
func (everyOther) Expiry(limit.State) int64                { return limit.Never }
func (everyOther) Peek(s limit.State, _, _ int64) limit.Outcome {
	return limit.Outcome{Allowed: s.Head == 0}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := limiter(t, `
- url: /
  rules: [{actor: all, rpu: 1000000}, {actor: ip, rpu: 5}]
- url: /a
  rules: [{actor: device, rpu: 1000000, algo: SW}, {rpu: 9, algo: C}]
`)
	for _, r := range []diana.Request{
		{Path: "/nothing"}, // refused by ip after 5
		{Path: "/a", Actors: map[string]string{"ip": "2001:db8::1", "device": "d"}},
	} {
		if got := testing.AllocsPerRun(100, func() {
			d, _ := l.Take(context.Background(), r)
			d.Done()
		}); got != 0 {
			t.Errorf("%s: %v allocations", r.Path, got)
		}
	}
}

// ruleCounts are the decisions of a rule by their kind.
type ruleCounts struct{ Allowed, Refused, ShadowRefused, Delayed int64 }

func countsOf(r diana.RuleStatus) ruleCounts {
	return ruleCounts{r.Allowed, r.Refused, r.ShadowRefused, r.Delayed}
}
