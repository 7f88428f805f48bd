// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
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
	if race.Enabled {
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

// A rule decides and counts the same alone as beside a rule that allows everything.
func TestOneRuleAsBesideAnother(t *testing.T) {
	t.Parallel()
	const some = "{name: other, rpu: 1000000000}"
	const many = "{rpu: 900000000}, {rpu: 900000001}, {rpu: 900000002}, {rpu: 900000003}" // too many for the short way
	for _, rule := range []string{
		"actor: account, rpu: 5",
		"actor: account, rpu: 5}, {name: two, rpu: 7, unit: minute",
		"actor: account, rpu: 3, mode: shadow}, {name: two, rpu: 0, mode: shadow}, {name: three, actor: account, rpu: 0, overrides: {ann: {rpu: 4}}",
		"actor: account, rpu: 4, except: [eve]}, {name: two, actor: account, rpu: 5, algo: W, except: [eve, joe]}, {name: three, actor: account, rpu: 6, algo: SL",
		"rpu: 7, unit: minute",
		"actor: account, rpu: 0",
		"actor: account, rpu: 3, mode: shadow",
		"actor: account, rpu: 5, cost: 2",
		"actor: account, rpu: 5, cost: 3, overrides: {bob: {rpu: 0}}",
		"actor: account, rpu: 5, except: [eve], overrides: {ann: {rpu: 2}, bob: {rpu: 0}}",
		"actor: [account, ip], rpu: 4, algo: W",
		"actor: account, rpu: 4, algo: SL",
		"actor: account, rpu: 4, algo: SW",
		"actor: account, rpu: 4, algo: C",
		"actor: account, rpu: 4, algo: LB, mode: shadow",
	} {
		for _, others := range []string{some, many} {
			asBeside(t, rule, others)
		}
	}
}

// asBeside checks that a request is decided in the same way under rules alone and beside others.
func asBeside(t *testing.T, rule, others string) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	o := diana.Options{Now: func() time.Time { return now }}
	alone := limiterOf(t, o, fmt.Sprintf("max_keys: 100\nlimits: [{url: /, rules: [{name: one, %s}]}]", rule))
	beside := limiterOf(t, o, fmt.Sprintf("max_keys: 100\nlimits: [{url: /, rules: [{name: one, %s}, %s]}]", rule, others))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
		r := account([]string{"ann", "bob", "eve", "joe", fmt.Sprint(i)}[random.IntN(5)])
		got, want := decided(t, alone, r), decided(t, beside, r)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: request %d of %v: %+v alone, %+v beside another rule", rule, i, r.Actors, got, want)
		}
	}
	for i, got := range alone.Status().Rules {
		want := beside.Status().Rules[i]
		if got.Allowed != want.Allowed || got.Refused != want.Refused || got.ShadowRefused != want.ShadowRefused || got.Overflow != want.Overflow {
			t.Errorf("%s: %+v alone, %+v beside another rule", rule, got, want)
		}
	}
}

// decided returns what a Decision says of the rules "one", "two" and "three".
func decided(t *testing.T, l *diana.Limiter, r diana.Request) (says []any) {
	t.Helper()
	d, err := l.Take(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done()
	says = append(says, d.Allowed, d.RetryAfter, d.Delayed, d.Degraded)
	for _, v := range d.Verdicts {
		if slices.Contains([]string{"one", "two", "three"}, v.Rule.Name) {
			says = append(says, v.Rule.Name, v.Outcome, v.Rule.Limit)
		}
	}
	return says
}

// Requests under one rule and under three use the same memory in turn, and allocate nothing.
func TestOneRuleAndThreeAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := limiter(t, `
- {url: /one, rules: [{actor: account, rpu: 1000}]}
- {url: /three, rules: [{rpu: 1000}, {actor: ip, rpu: 1000}, {actor: account, rpu: 1000}]}
`)
	one, three := account("ann"), account("ann")
	one.Path, three.Path = "/one", "/three"
	inTurn := func() {
		for _, r := range [...]diana.Request{one, three} {
			d, err := l.Take(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done()
		}
	}
	if n := testing.AllocsPerRun(200, inTurn); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

const chargedRules = `
max_keys: 1000
%s
limits:
- {url: /, rules: [{name: small, actor: account, unit: day, algo: W, rpu: 5%[2]s}]}
- {url: /large, rules: [{name: large, actor: account, unit: day, algo: W, rpu: 100%[2]s}]}
- {url: /shadow, rules: [{name: shadow, mode: shadow, actor: account, unit: day, algo: W, rpu: 1%[2]s}]}
`

// charging takes one request with charges, and returns whether it is allowed and what is left.
func charging(t *testing.T, l *diana.Limiter, charges ...rule.Charge) (bool, []int64) {
	t.Helper()
	d, err := l.Take(context.Background(), diana.Request{Charges: charges})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done()
	var left []int64
	for _, v := range d.Verdicts {
		left = append(left, v.Remaining)
	}
	return d.Allowed, left
}

// onBothStores calls a test with a Limiter that counts in this process, and with one that counts in
// Redis.
func onBothStores(t *testing.T, f func(t *testing.T, l *diana.Limiter)) {
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		f(t, limiter(t, fmt.Sprintf(chargedRules, "", "")))
	})
	t.Run("global", func(t *testing.T) {
		t.Parallel()
		l := limiter(t, fmt.Sprintf(chargedRules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
		testproc.Eventually(t, connected(l))
		f(t, l)
	})
}

// A request that names its rules is charged to all of them, or to none.
func TestCharges(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		small := func(cost int64) rule.Charge { return rule.Charge{Rule: "small", Key: "ann", Cost: cost} }
		large := func(cost int64) rule.Charge { return rule.Charge{Rule: "large", Key: "ann", Cost: cost} }
		for i, row := range []struct {
			charges []rule.Charge
			allowed bool
			left    string
		}{
			{[]rule.Charge{small(2), large(10)}, true, "[3 90]"},
			{[]rule.Charge{{Rule: "small", Key: "joe", Cost: 1}, {Rule: "small", Key: "a:b", Cost: 1}}, true, "[4 4]"},
			{[]rule.Charge{small(4), large(10)}, false, ""},
			{[]rule.Charge{small(0), large(0)}, true, "[3 90]"},
			{[]rule.Charge{small(3), large(1)}, true, "[0 89]"},
			{[]rule.Charge{small(0)}, true, "[0]"},
			{[]rule.Charge{small(-1), large(1)}, true, ""},
			{[]rule.Charge{small(0), large(0)}, true, "[1 88]"},
			{[]rule.Charge{small(2), large(-80)}, false, ""}, // refunds nothing
			{[]rule.Charge{small(0), large(0)}, true, "[1 88]"},
			{[]rule.Charge{small(-80)}, true, ""}, // not more than the limit
			{[]rule.Charge{small(0)}, true, "[5]"},
			{[]rule.Charge{{Rule: "shadow", Key: "x", Cost: 2}, small(1)}, true, "[1 4]"},
		} {
			allowed, left := charging(t, l, row.charges...)
			if got := strings.ReplaceAll(fmt.Sprint(left), "-1", "0"); allowed != row.allowed || row.left != "" && got != row.left {
				t.Errorf("%d: %+v is allowed %v with %v left, want %v and %s", i, row.charges, allowed, left, row.allowed, row.left)
			}
		}
		if _, err := l.Take(t.Context(), diana.Request{Charges: []rule.Charge{{Rule: "none"}}}); err == nil || !strings.Contains(err.Error(), `no rule has the name "none"`) {
			t.Errorf("an unknown rule: %v", err)
		}
	})
}

// A debit is made although the limit is used up, unless another rule refuses the request.
func TestDebits(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		debit := func(cost int64) rule.Charge { return rule.Charge{Rule: "small", Key: "ann", Cost: cost, Debit: true} }
		take := func(want bool, charges ...rule.Charge) {
			t.Helper()
			if allowed, left := charging(t, l, charges...); allowed != want {
				t.Errorf("%+v is allowed %v with %v left", charges, allowed, left)
			}
		}
		take(true, debit(4))
		take(true, debit(4)) // 8 of 5
		take(false, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: -4})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: 1}) // 5 of 5
		take(false, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
		take(false, debit(4), rule.Charge{Rule: "large", Key: "ann", Cost: 101})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: -1})
		take(true, rule.Charge{Rule: "small", Key: "ann", Cost: 1})
	})
}

// Many requests at once with charges to two rules are counted exactly.
func TestChargesAtOnce(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		var wg sync.WaitGroup
		var allowed atomic.Int64
		for i := range 64 {
			wg.Go(func() {
				for range 10 {
					if ok, _ := charging(t, l, rule.Charge{Rule: "large", Key: "all", Cost: 2}, rule.Charge{Rule: "large", Key: fmt.Sprint(i), Cost: 1}); ok {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := allowed.Load(); n != 50 {
			t.Errorf("%d requests of cost 2 are allowed, want 50 of a limit of 100", n)
		}
	})
}

// A refused charge with Debit is made in the call that has refused it. In a second call it could count in
// the next window.
func TestDebitIsOneCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	l := limiterOf(t, diana.Options{RedisObserved: func(time.Duration) { calls.Add(1) }},
		fmt.Sprintf(chargedRules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
	testproc.Eventually(t, connected(l))
	debit := []rule.Charge{{Rule: "small", Key: "ann", Cost: 4, Debit: true}, {Rule: "large", Key: "ann", Cost: 1, Debit: true}}
	charging(t, l, debit...)
	n, want := int64(0), int64(99)
	for try := 0; try < 5 && n != 10; try++ { // the Store announces this gateway by a call too, every 0.8 s
		before := calls.Load()
		for range 10 {
			charging(t, l, debit...)
		}
		n, want = calls.Load()-before, want-10
	}
	if n != 10 {
		t.Errorf("10 requests over a limit took %d calls, want 10", n)
	}
	if _, left := charging(t, l, rule.Charge{Rule: "large", Key: "ann"}); left[0] != want {
		t.Errorf("%d of 100 are left, want %d", left[0], want)
	}
}

// A debit of the local store is undone if Redis refuses the request, and made once if Redis fails.
func TestDebitBesideRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := limiter(t, fmt.Sprintf(`
redis: {url: %q, timeout: 3s}
limits:
- {url: /, rules: [{name: near, actor: account, unit: day, algo: W, rpu: 5, scope: local}]}
- {url: /far, rules: [{name: far, actor: account, unit: day, algo: W, rpu: 2, scope: global, on_error: open}]}
`, r.URL()))
	testproc.Eventually(t, connected(l))
	near := func(cost int64) rule.Charge { return rule.Charge{Rule: "near", Key: "ann", Cost: cost, Debit: true} }
	far := rule.Charge{Rule: "far", Key: "ann", Cost: 2}
	other := rule.Charge{Rule: "far", Key: "joe", Cost: 2} // no refusal of it is remembered
	step := func(want bool, charges ...rule.Charge) {
		t.Helper()
		if allowed, left := charging(t, l, charges...); allowed != want {
			t.Errorf("%+v is allowed %v with %v left, want %v", charges, allowed, left, want)
		}
	}
	step(true, near(4), far)  // 4 of 5
	step(false, near(4), far) // Redis refuses
	step(true, near(3))       // 7 of 5
	step(false, near(3), far)
	r.Freeze()
	step(true, near(2), other) // 9 of 5, after the local store was asked twice
	one := rule.Charge{Rule: "near", Key: "ann", Cost: 1}
	step(false, one)
	step(true, near(-4))
	step(false, one)
	step(true, near(-1))
	step(true, one)
	step(false, one)
}

// A debited charge is refunded for a status that does not count, and a debited slot is released.
func TestDebitsEnd(t *testing.T) {
	t.Parallel()
	const rules = `
%s
limits:
- {url: /, rules: [{name: counted, actor: account, unit: day, algo: W, rpu: 5, charge: [200]%[2]s}]}
- {url: /slots, rules: [{name: slots, actor: account, algo: C, rpu: 1%[2]s}]}
`
	test := func(t *testing.T, l *diana.Limiter) {
		for _, name := range []string{"counted", "slots"} {
			one := rule.Charge{Rule: name, Key: "ann", Cost: 1}
			debit := rule.Charge{Rule: name, Key: "ann", Cost: 5, Debit: true}
			var all []diana.Decision
			for range 2 { // 10 of 5, and 10 slots of 1
				d, err := l.Take(t.Context(), diana.Request{Charges: []rule.Charge{debit}})
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				all = append(all, d)
			}
			if ok, _ := charging(t, l, one); ok {
				t.Errorf("%s: a request is allowed beside two debits", name)
			}
			for _, d := range all {
				d.SetStatus(503)
				d.Done()
			}
			if ok, left := charging(t, l, one); !ok {
				t.Errorf("%s: a request is refused after two debits have ended, with %v left", name, left)
			}
		}
	}
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, limiter(t, fmt.Sprintf(rules, "", "")))
	})
	t.Run("global", func(t *testing.T) {
		t.Parallel()
		l := limiter(t, fmt.Sprintf(rules, fmt.Sprintf("redis: {url: %q, timeout: 10s}", redistest.Start(t).URL()), ", scope: global"))
		testproc.Eventually(t, connected(l))
		test(t, l)
	})
}

// clocked returns a Limiter whose clock is *now.
func clocked(t testing.TB, yaml string, now *time.Time) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	o := quiet
	o.Now = func() time.Time { return *now }
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	l := clocked(t, "{url: /, rules: [{algo: W, rpu: 2, unit: minute}]}", &now)
	if since := l.Status().Config.Since; !since.Equal(now) {
		t.Errorf("in force since %v, want %v", since, now)
	}
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed, want 2", n)
	}
	if d := ask(t, l, diana.Request{}); d.RetryAfter != 54*time.Second {
		t.Errorf("retry after %v, want what is left of the minute, 54s", d.RetryAfter)
	}
	now = now.Add(54 * time.Second)
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed in the next minute, want 2", n)
	}
}

// With a clock of the program no request waits, but the decisions are those of the system's clock. The
// same requests at the same moments, under two leaky buckets and a window, have the same delays and
// refusals.
func TestClockDecidesWithoutWaiting(t *testing.T) {
	t.Parallel()
	const yaml = `
- url: /
  rules: [{name: all, algo: LB, rpu: 10, queue: 5}, {name: shadow, algo: LB, rpu: 1, queue: 1, mode: shadow}]
- url: /x
  rules: [{name: slow, algo: LB, rpu: 4, queue: 2}, {algo: SW, rpu: 11, unit: 3s}]
`
	requests := []struct {
		pause time.Duration // before it
		path  string
	}{}
	for i := range 300 {
		requests = append(requests, struct {
			pause time.Duration
			path  string
		}{time.Duration(i*i*7919%149) * time.Millisecond, []string{"/", "/x", "/x"}[i%3]})
	}
	type answer struct {
		allowed bool
		delayed time.Duration
		retry   time.Duration
	}
	var held, told []answer
	var counts []diana.RuleStatus
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // at which synctest begins

	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, yaml)
		held = make([]answer, len(requests))
		for i, r := range requests {
			time.Sleep(r.pause)
			go func() {
				d, err := l.Take(context.Background(), diana.Request{Path: r.path})
				if err != nil {
					t.Error(err)
				}
				held[i] = answer{d.Allowed, d.Delayed, d.RetryAfter}
				d.Done()
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		counts = l.Status().Rules
	})

	now := start
	l := clocked(t, yaml, &now)
	for _, r := range requests {
		now = now.Add(r.pause)
		d := ask(t, l, diana.Request{Path: r.path})
		told = append(told, answer{d.Allowed, d.Delayed, d.RetryAfter})
	}
	for i := range requests {
		if held[i] != told[i] {
			t.Errorf("request %d: %+v when held, %+v when told", i, held[i], told[i])
		}
	}
	for i, r := range l.Status().Rules {
		if countsOf(r) != countsOf(counts[i]) {
			t.Errorf("%s: %+v when held, %+v when told", r.Name, countsOf(counts[i]), countsOf(r))
		}
		if r.Name == "slow" && (r.Delayed == 0 || r.Refused == 0) {
			t.Errorf("%+v: nothing was delayed or refused, so nothing is shown", countsOf(r))
		}
	}
}

// With a clock of the program a bandwidth slows no response.
func TestClockSlowsNoResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
		for _, bandwidth := range []string{"1k", "{rate: 1k, actor: ip}"} {
			l := clocked(t, "{url: /, rules: [{rpu: 10, charge: [404]}], bandwidth: "+bandwidth+"}", &now)
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5000)) }))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			if took := time.Since(start); took > 0 || w.Body.Len() != 5000 {
				t.Errorf("%s: %d bytes after %v, want 5000 at once", bandwidth, w.Body.Len(), took)
			}
		}
	})
}

// TestCost consumes what a request costs, under each algorithm.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		l := limiter(t, "{url: /, rules: [{algo: "+algo+", unit: day, rpu: 10, cost: 3}]}")
		if n := count(t, l, 10, diana.Request{}); n != 3 {
			t.Errorf("%s: %d of cost 3 pass, want 3", algo, n)
		}
	}
	l := limiter(t, "{url: /, rules: [{algo: C, rpu: 10, cost: 3}]}")
	var inside []diana.Decision
	for range 3 {
		d, err := l.Take(t.Context(), diana.Request{})
		if err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		inside = append(inside, d)
	}
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("a fourth request of cost 3 holds 3 of 10 slots")
	}
	inside[1].Done()
	if !ask(t, l, diana.Request{}).Allowed {
		t.Error("no 3 slots are free after one request has ended")
	}
}

// TestWithCost believes the cost that a filter in front sets, and not the client's.
func TestWithCost(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 100, cost: 'header:X-Cost'}]}")
	left := func(h http.Handler) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Cost", "0")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("RateLimit")
	}
	var seen string
	h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("X-Cost") }))
	filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, diana.WithCost(diana.WithCost(r, "X-Other", 9), "x-cost", 40))
	})
	for i, row := range []struct {
		h    http.Handler
		want string
		seen string
	}{
		{h, `"all-100-day";r=99;t=86400`, "0"},
		{filter, `"all-100-day";r=59;t=85536`, "40"},
		{filter, `"all-100-day";r=19;t=50976`, "40"},
	} {
		if got := left(row.h); got != row.want || seen != row.seen {
			t.Errorf("request %d: %s and the header is %q, want %s and %q", i, got, seen, row.want, row.seen)
		}
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 20}}); d.Allowed {
		t.Error("20 pass where 19 are left")
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 19}}); !d.Allowed {
		t.Error("19 do not pass where 19 are left")
	}
	r := diana.WithCost(httptest.NewRequest("GET", "/", nil), "X-Cost", 5)
	if e, err := l.Explain(diana.Request{Method: "GET", Path: "/", HTTP: r}); err != nil || e[0].Cost != 5 {
		t.Errorf("explained as a cost of %d, want 5", e[0].Cost)
	}
}

// TestWithActor has filters establish who makes a request, against what its header fields say.
func TestWithActor(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
identity: {account: [header:X-Account], device: [header:X-Device-Id]}
limits:
- {url: /account, rules: [{actor: account, unit: day, rpu: 1}]}
- {url: /header, rules: [{actor: 'header:X-Tenant', unit: day, rpu: 1}]}
- {url: /ip, rules: [{actor: ip, unit: day, rpu: 1}]}
`)
	request := func(path string, actors ...string) *http.Request {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Account", "forged")
		r.Header.Set("X-Tenant", "forged")
		for i := 0; i < len(actors); i += 2 {
			r = diana.WithActor(r, actors[i], actors[i+1])
		}
		return r
	}
	for _, tc := range []struct {
		r    *http.Request
		path string
		want string
	}{
		{request("/"), "/account", "header:X-Account=6:forged;"},
		{request("/", "account", "ann"), "/account", "account=3:ann;"},
		{request("/", "account", "ann", "device", "d", "account", "bob"), "/account", "account=3:bob;"},
		{request("/", "header:x-account", "ann"), "/account", "header:X-Account=3:ann;"},
		{request("/", "account", ""), "/account", "ip=192.0.2.1;"}, // known to be none: the field is not believed
		{request("/", "account", "ann", "account", ""), "/account", "ip=192.0.2.1;"},
		{request("/", "account", "", "header:X-Account", "ann"), "/account", "ip=192.0.2.1;"},
		{request("/"), "/header", "header:X-Tenant=6:forged;"},
		{request("/", "header:x-tenant", "t"), "/header", "header:X-Tenant=1:t;"},
		{request("/", "header:X-Tenant", ""), "/header", "ip=192.0.2.1;"},
		{request("/", "ip", "192.0.2.7"), "/ip", "ip=192.0.2.7;"},
		{request("/", "ip", ""), "/ip", "ip=none;"},
		{request("/", "moon", "x"), "/account", "header:X-Account=6:forged;"},
		{diana.WithCost(request("/", "account", "ann"), "X-Cost", 3), "/account", "account=3:ann;"},
		{diana.WithActor(diana.WithCost(request("/"), "X-Cost", 3), "account", "ann"), "/account", "account=3:ann;"},
	} {
		e, err := l.Explain(diana.Request{Path: tc.path, HTTP: tc.r})
		if err != nil || len(e) != 1 || e[0].Key != tc.want {
			t.Errorf("%s: %+v, %v, want %s", tc.path, e, err, tc.want)
		}
	}
	for i, tc := range []struct {
		r      *http.Request
		actors map[string]string
		want   bool
	}{
		{request("/account", "account", "ann"), nil, true},
		{request("/account", "account", "ann"), nil, false},
		{request("/account", "account", "ann"), map[string]string{"account": "bob"}, true}, // the caller wins
		{request("/account", "account", "bob"), map[string]string{"device": "d"}, false},   // the filter is believed beside it
		{request("/account", "account", "bob"), map[string]string{"account": ""}, false},
		{request("/account", "account", "cid"), nil, true},
	} {
		d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/account", HTTP: tc.r, Actors: tc.actors})
		if err != nil || d.Allowed != tc.want {
			t.Errorf("request %d: %v, %v, want %v", i, d.Allowed, err, tc.want)
		}
		d.Done()
	}
	if w := serve(l, request("/account", "account", "cid")); w.Code != http.StatusServiceUnavailable {
		t.Errorf("Handler: %d, want 503", w.Code)
	}
	if account, _, _ := l.Identify(diana.Request{HTTP: request("/", "account", "ann")}); account != "ann" {
		t.Errorf("identified as %q, want ann", account)
	}
}

// TestWithActorCopies changes no request that another filter has.
func TestWithActorCopies(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{actor: account, rpu: 10, unit: day, cost: 'header:X-Cost'}]}")
	key := func(r *http.Request) string {
		e, err := l.Explain(diana.Request{Path: "/", HTTP: r})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(e[0].Key, " ", e[0].Cost)
	}
	plain := httptest.NewRequest("GET", "/", nil)
	ann := diana.WithActor(plain, "account", "ann")
	dear := diana.WithCost(ann, "X-Cost", 3)
	bob := diana.WithActor(dear, "account", "bob")
	cheap := diana.WithCost(bob, "X-Cost", 2)
	for i, row := range []struct {
		r    *http.Request
		want string
	}{
		{plain, "ip=192.0.2.1; 1"}, {ann, "account=3:ann; 1"}, {dear, "account=3:ann; 3"}, {bob, "account=3:bob; 3"}, {cheap, "account=3:bob; 2"},
	} {
		if got := key(row.r); got != row.want {
			t.Errorf("request %d: %s, want %s", i, got, row.want)
		}
	}
}

// BenchmarkHandler is three local rules (all, ip, device) out of a thousand URLs, and
// the bare handler behind them.
func BenchmarkHandler(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	run := func(name string, h http.Handler) {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/api/v500/orders", nil)
			r.Header.Set("X-Device-Id", "0a1b2c3d")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	run("bare", bare)
	for _, urls := range []int{10, 1000, 10000} {
		for _, headers := range []bool{false, true} {
			var yaml strings.Builder
			fmt.Fprintf(&yaml, "response: {headers: %v}\nlimits:\n", headers)
			for i := range urls {
				fmt.Fprintf(&yaml, "- {url: /api/v%d, rules: [{rpu: 1000000000}]}\n", i)
			}
			yaml.WriteString("- {url: '/api/{any}/orders', rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, rpu: 1000000000}]}\n")
			if yaml.Len() > 500_000 {
				continue
			}
			run(fmt.Sprintf("urls=%d,fields=%v", urls, headers), limiter(b, yaml.String()).Handler(bare))
		}
	}
}

// BenchmarkRefusal measures refusals of one actor that floods, and of many actors one after another.
func BenchmarkRefusal(b *testing.B) {
	l := limiter(b, "url: /\nrules: [{actor: device, unit: day, rpu: 1}]")
	devices := make([]map[string]string, 10_000)
	for i := range devices {
		devices[i] = map[string]string{"device": fmt.Sprintf("device-%d", i)}
	}
	for _, actors := range []int{1, len(devices)} {
		for i := range actors { // each has consumed its one request
			count(b, l, 1, diana.Request{Path: "/", Actors: devices[i]})
		}
		b.Run(fmt.Sprintf("actors=%d", actors), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					d, err := l.Take(context.Background(), diana.Request{Path: "/", Actors: devices[i%actors]})
					if err != nil || d.Allowed {
						b.Fatal(d.Allowed, err)
					}
					d.Done()
				}
			})
		})
	}
}

// BenchmarkTake is a decision under local rules: by one actor under one rule and under three, and
// of a request that no rule covers.
func BenchmarkTake(b *testing.B) {
	l := limiter(b, `
- {url: /one, rules: [{actor: account, rpu: 1000000000}]}
- {url: /none, rules: [{actor: account, rpu: 0}]}
- {url: /three, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: account, rpu: 1000000000}]}
`)
	for _, path := range []string{"/one", "/none", "/three", "/uncovered"} {
		b.Run(path[1:], func(b *testing.B) {
			r := diana.Request{Path: path, Actors: map[string]string{"account": "ann", "ip": "192.0.2.1"}}
			b.ReportAllocs()
			for b.Loop() {
				d, err := l.Take(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				d.Done()
			}
		})
	}
}

// A Prepared decides, counts, calls hooks and notes refusals as Take does, before and after a change of the
// configuration.
func TestPrepared(t *testing.T) {
	t.Parallel()
	texts := []string{
		"{url: /a, rules: [{name: r, actor: account, rpu: 3}]}",
		"- {url: /, rules: [{name: all, rpu: 5, unit: day}]}\n- {url: GET /a, rules: [{name: r, actor: account, rpu: 1}]}\n- {url: /b, rules: [{rpu: 0}]}",
		"{url: /b, rules: [{name: r, rpu: 0}]}",
		"{url: '/a/{x}', rules: [{name: r, algo: C, rpu: 1}]}",
	}
	requests := []diana.Request{
		{Actors: map[string]string{"account": "ann"}}, {Actors: map[string]string{"account": "bob"}}, {}, {Path: "/b"}, {Method: "POST"},
		{HTTP: &http.Request{Header: http.Header{"X-Http-Method": {"GET"}}}}, {OtherPaths: []string{"/b"}}, {Path: "/a/..;/x"},
		{Charges: []rule.Charge{{Rule: "r", Key: "k", Cost: 1}}},
	}
	run := func(prepared bool) (log []string) {
		l := limiterOf(t, diana.Options{
			Now:        func() time.Time { return time.Unix(1_000_000, 0) },
			OnDecision: func(d *diana.Decision) { log = append(log, fmt.Sprint("hook ", d.Request().Path, d.Allowed)) },
		}, texts[0])
		p := l.Prepare("GET", "/a")
		for _, text := range append(texts, texts[0]) {
			update(t, l, text)
			for _, r := range append(requests, requests...) {
				if !prepared && r.Method == "" {
					r.Method = "GET"
				}
				if !prepared && r.Path == "" {
					r.Path = "/a"
				}
				take := l.Take
				if prepared {
					take = p.Take
				}
				d, err := take(context.Background(), r)
				log = append(log, fmt.Sprint(d.Allowed, d.RetryAfter, len(d.Verdicts), err))
				d.Done()
			}
			for _, r := range l.Status().Rules {
				log = append(log, fmt.Sprint(r.Name, countsOf(r), len(r.TopRefused) > 0))
			}
			log = append(log, fmt.Sprint(l.Rejected()))
		}
		return log
	}
	got, want := run(true), run(false)
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("%d lines, want %d; line %d is %v, want %v", len(got), len(want), i, got[min(i, len(got)-1)], want[i])
		}
	}
}

// A path that no honest client sends stays an error, each time.
func TestPreparedStrangePath(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 1}]}")
	p := l.Prepare("GET", "/\x00")
	for range 3 {
		if _, err := p.Take(context.Background(), diana.Request{}); !errors.As(err, new(*rule.PathError)) {
			t.Fatalf("error %v, want a rule.PathError", err)
		}
	}
	if n := l.Rejected()["path"]; n != 3 {
		t.Errorf("%d requests were rejected, want 3", n)
	}
}

// One Prepared serves many goroutines while the configuration changes, and counts exactly.
func TestPreparedWhileConfigurationsChange(t *testing.T) {
	t.Parallel()
	text := "- {url: /jobs, rules: [{name: r, unit: day, rpu: 1000}]}\n- {url: /%s, rules: [{rpu: 1}]}"
	l := limiter(t, fmt.Sprintf(text, "x"))
	p := l.Prepare("", "/jobs")
	var allowed [4]int
	var wg sync.WaitGroup
	for i := range allowed {
		wg.Go(func() {
			for range 500 {
				d, err := p.Take(context.Background(), diana.Request{})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed[i]++
				}
				d.Done()
			}
		})
	}
	for i := range 20 {
		update(t, l, fmt.Sprintf(text, fmt.Sprint("x", i)))
	}
	wg.Wait()
	if n := allowed[0] + allowed[1] + allowed[2] + allowed[3]; n != 1000 {
		t.Errorf("%d of 2000 requests were allowed, want 1000", n)
	}
}

// A prepared request does not allocate under local rules.
func TestPreparedDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := limiter(t, "{url: '/a/{x}', rules: [{actor: account, rpu: 1000000}]}")
	p, r := l.Prepare("GET", "/a/b"), diana.Request{Actors: map[string]string{"account": "ann"}}
	if n := testing.AllocsPerRun(100, func() {
		d, _ := p.Take(context.Background(), r)
		d.Done()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// BenchmarkPrepared is a decision by one actor among the rules of a thousand URLs, prepared and not.
func BenchmarkPrepared(b *testing.B) {
	yaml := ""
	for i := range 1000 {
		yaml += fmt.Sprintf("- {url: /v%d/users/orders, rules: [{actor: account, rpu: 1000000000}]}\n", i)
	}
	l := limiter(b, yaml)
	r := diana.Request{Method: "POST", Path: "/v500/users/orders", Actors: map[string]string{"account": "ann"}}
	for name, take := range map[string]func(context.Context, diana.Request) (diana.Decision, error){
		"found": l.Take, "prepared": l.Prepare(r.Method, r.Path).Take,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := take(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				d.Done()
			}
		})
	}
}

// native is a rule.Native over a request of net/http. It counts the copies.
type native struct {
	r      *http.Request
	copies *int
}

func (n native) Context() context.Context   { return n.r.Context() }
func (n native) Field(name string) []string { return n.r.Header[name] }
func (n native) Host() string               { return n.r.Host }
func (n native) Query() string              { return n.r.URL.RawQuery }
func (n native) Peer() string               { return n.r.RemoteAddr }
func (n native) HTTP() *http.Request {
	*n.copies++
	return n.r.Clone(n.r.Context())
}

// explained returns explanations as a text.
func explained(list []diana.Explanation) (text string) {
	for _, e := range list {
		name, limit := e.Rule.Name, e.Rule.Limit
		e.Rule = nil
		text += fmt.Sprintf("%s %v %+v\n", name, limit, e)
	}
	return text
}

// Rules, identity, exceptions, classes, costs and decisions are the same for a request over HTTP and for a Native.
func TestNative(t *testing.T) {
	t.Parallel()
	v := config.DefaultVocabulary()
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "scheme", Find: func(r *http.Request, _ string) string { return r.Proto }})
	yaml := `
identity: {account: ["header:X-Account-Id", "query:key"], device: ["cookie:device"], trusted_proxies: [10.0.0.0/8]}
limits:
- url: /
  rules:
  - {name: account, actor: account, unit: day, rpu: 5, except: [boss], overrides: {ann: {rpu: 2}}}
  - {name: device, actor: device, unit: day, rpu: 7, class: "header:X-Plan", classes: {gold: {rpu: 9}}}
  - {name: ip, actor: ip, unit: day, rpu: 30, cost: "header:X-Cost", except: [192.0.2.9]}
  - {name: client, actor: [host, "header:Host"], unit: day, rpu: 50, cost: "client:X-Cost"}
- {url: DELETE /x, rules: [{name: delete, unit: day, rpu: 3}]}
`
	parse := func(text string) *config.Config {
		c, err := v.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	made := func(text string) *diana.Limiter {
		l, err := diana.Options{Vocabulary: v}.New(parse(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	copied, asked := made(yaml), made(yaml)
	request := func(peer, host, query string, header http.Header) *http.Request {
		return &http.Request{Method: "GET", URL: &url.URL{Path: "/x", RawQuery: query}, Host: host, RemoteAddr: peer, Header: header, Proto: "p"}
	}
	requests := []*http.Request{
		request("", "", "", nil),
		request("192.0.2.1:80", "a.example:80", "", http.Header{"X-Account-Id": {"ann"}}),
		request("192.0.2.1:80", "A.example", "key=bob&x=1", http.Header{"Cookie": {"a=b; device=d1", "c=d"}}),
		request("192.0.2.1:80", "a", "key=a&key=b", http.Header{"X-Account-Id": {"boss"}, "Cookie": {"device=1; device=2"}}),
		request("10.0.0.1:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9", "192.0.2.7, 10.2.3.4"}, "X-Plan": {"gold"}, "X-Cost": {"3"}}),
		request("192.0.2.4:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9"}, "X-Plan": {"gold"}, "X-Cost": {"3"}}),
		request("10.0.0.1:80", "a", "", http.Header{"X-Forwarded-For": {"192.0.2.9"}, "X-Plan": {"gold", "lead"}, "X-Cost": {"x"}}),
		request("[2001:db8::1]:80", "a", "", http.Header{"X-Account-Id": {"ann", "bob"}, "X-Http-Method-Override": {"PUT, delete"}}),
		diana.WithActor(diana.WithCost(request("192.0.2.1:80", "a", "", http.Header{"X-Account-Id": {"ann"}}), "X-Cost", 4), "account", "eve"),
		diana.WithActor(request("192.0.2.1:80", "a", "", http.Header{"X-Account-Id": {"ann"}}), "account", ""),
	}
	copies := 0
	for round := range 4 {
		for i, r := range requests {
			one, other := diana.Request{Method: "GET", Path: "/x", HTTP: r}, diana.Request{Method: "GET", Path: "/x", Native: native{r, &copies}}
			account, device, ip := copied.Identify(one)
			if a, d, p := asked.Identify(other); a != account || d != device || p != ip {
				t.Errorf("request %d: %q, %q, %v, want %q, %q, %v", i, a, d, p, account, device, ip)
			}
			want, err := copied.Explain(one)
			got, failed := asked.Explain(other)
			if err != nil || failed != nil || explained(got) != explained(want) {
				t.Errorf("request %d: %s, %v, want %s, %v", i, explained(got), failed, explained(want), err)
			}
			d, err := copied.Take(context.Background(), one)
			take := asked.Take
			if round%2 > 0 {
				take = asked.Prepare("GET", "/x").Take
			}
			e, failed := take(context.Background(), other)
			if err != nil || failed != nil || d.Allowed != e.Allowed || len(d.Verdicts) != len(e.Verdicts) {
				t.Errorf("round %d, request %d: %v, %v, want %v, %v", round, i, e.Allowed, failed, d.Allowed, err)
			}
			for j := range min(len(d.Verdicts), len(e.Verdicts)) {
				if d.Verdicts[j].Rule.Name != e.Verdicts[j].Rule.Name || d.Verdicts[j].Remaining != e.Verdicts[j].Remaining {
					t.Errorf("round %d, request %d: %+v, want %+v", round, i, e.Verdicts[j], d.Verdicts[j])
				}
			}
			d.Done()
			e.Done()
		}
	}
	if copies > 0 {
		t.Errorf("%d copies were made, want none", copies)
	}
	own := made("{url: /, rules: [{name: r, actor: scheme, rpu: 1}, {name: s, actor: [scheme, ip], rpu: 1}]}")
	list, err := own.Explain(diana.Request{Path: "/", Native: native{requests[1], &copies}})
	if err != nil || len(list) != 2 || list[0].Key != "scheme=1:p;" || copies != 1 {
		t.Errorf("%+v, %v and %d copies; want the key of a kind without Ask, by one copy", list, err, copies)
	}
}

// A Native proves an identity as a request over HTTP does. A credential that is not valid, or dropped, is no way around it.
func TestNativeCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: day, rpu: 1}]")
	take := func(lines ...string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(lines); i += 2 {
			r.Header.Add(lines[i], lines[i+1])
		}
		copies := 0
		d, err := k.Take(t.Context(), diana.Request{Method: r.Method, Path: "/", Native: native{r, &copies}})
		defer d.Done()
		var failed *rule.CredentialError
		if errors.As(err, &failed) {
			return fmt.Sprint(failed.Status)
		}
		return fmt.Sprint(d.Allowed, err)
	}
	for i, tc := range []struct {
		lines []string
		want  string
	}{
		{nil, "401"},
		{[]string{"X-Api-Key", "guessed"}, "401"},
		{[]string{"X-Api-Key", k.keys["eve"]}, "401"},
		{[]string{"X-Api-Key", k.keys["ann"]}, "true <nil>"},
		{[]string{"X-Api-Key", k.keys["ann"]}, "false <nil>"},
		{[]string{"X-Api-Key", k.keys["bob"]}, "true <nil>"},
	} {
		if got := take(tc.lines...); got != tc.want {
			t.Errorf("request %d: %s, want %s", i, got, tc.want)
		}
	}
}

// A verdict has the made name of a rule without a name, whichever way the request is evaluated.
func TestVerdictHasMadeName(t *testing.T) {
	t.Parallel()
	l := limiter(t, "limits:\n- {url: /plain, rules: [{unit: hour, rpu: 1}]}\n- {url: /waits, rules: [{unit: hour, rpu: 1, wait: 1ms}]}\n")
	for path, want := range map[string]string{"/plain": "/plain all TB 1/hour", "/waits": "/waits all TB 1/hour"} {
		for range 2 {
			d, err := l.Take(t.Context(), diana.Request{Path: path})
			if err != nil || len(d.Verdicts) != 1 || d.Verdicts[0].Rule.Name != want {
				t.Errorf("%s: %v, %+v, want one verdict, by %q", path, err, d.Verdicts, want)
			}
			d.Done()
		}
	}
}
