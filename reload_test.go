// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// A reload keeps the counters of a rule with a name, also if the rule moves. Rules without a name keep
// their counters by their order.
func TestCountersAfterReload(t *testing.T) {
	t.Parallel()
	const ( // KEYS stands for the keys that all rules have in common
		named     = "{KEYS, name: quota, rpu: 100}"
		unnamed   = "{KEYS, rpu: 100}"
		trial     = "{KEYS, name: trial, rpu: 50, mode: shadow}, "
		noName    = "{KEYS, rpu: 50, mode: shadow}, "
		overrides = "{KEYS, name: quota, rpu: 1, overrides: {10.0.0.1: {rpu: 100}}}"
		double    = "KEYS, rpu: 100, cost: 2, mode: shadow" // uses its limit twice as fast
	)
	for _, row := range []struct {
		name        string
		before, now string // rules
		used, want  int    // requests that are allowed before the reload, and after
	}{
		{"no change", named, named, 100, 0},
		{"no change without a name", unnamed, unnamed, 100, 0},
		{"named trial in front", named, trial + named, 100, 0},
		{"unnamed trial in front", named, noName + named, 100, 0},
		{"named trial in front of unnamed", unnamed, trial + unnamed, 100, 0},
		{"unnamed trial in front of unnamed", unnamed, noName + unnamed, 100, 100},
		{"trial in front of overrides", overrides, trial + overrides, 100, 0},
		{"trial removed", trial + named, named, 100, 0},

		{"order of two named", "{KEYS, name: a, rpu: 100}, {name: b, " + double + "}", "{name: b, " + double + "}, {KEYS, name: a, rpu: 100}", 40, 60},
		{"order of named and unnamed", "{KEYS, name: a, rpu: 100}, {" + double + "}", "{" + double + "}, {KEYS, name: a, rpu: 100}", 40, 60},
		{"order of two unnamed", "{KEYS, rpu: 100}, {" + double + "}", "{" + double + "}, {KEYS, rpu: 100}", 40, 20},
		{"names swapped", "{KEYS, name: a, rpu: 100}, {name: b, " + double + "}", "{KEYS, name: b, rpu: 100}, {name: a, " + double + "}", 40, 20},

		{"renamed", named, "{KEYS, name: other, rpu: 100}", 100, 100},
		{"name added", unnamed, named, 100, 100},
		{"name removed", named, unnamed, 100, 100},
		{"default name given", unnamed, "{KEYS, name: '/ all ALGO 100/hour', rpu: 100}", 100, 100},
	} {
		for _, algo := range []string{"TB", "W", "SW", "SL"} {
			for _, scope := range []string{"local", "global"} { // global: without Redis
				t.Run(fmt.Sprintf("%s/%s/%s", row.name, algo, scope), func(t *testing.T) {
					t.Parallel()
					text := func(rules string) string {
						keys := fmt.Sprintf("algo: %s, scope: %s, unit: hour", algo, scope)
						return fmt.Sprintf("{url: /, rules: [%s]}", strings.NewReplacer("KEYS", keys, "ALGO", algo).Replace(rules))
					}
					now := time.Now()
					o := quiet
					o.Now = func() time.Time { return now }
					f := newFolder(t)
					l := open(t, o, f.write("diana.yaml", text(row.before)))
					request := diana.Request{Actors: map[string]string{"ip": "10.0.0.1"}}
					if got := count(t, l, row.used, request); got != row.used {
						t.Fatalf("%d of the first %d requests are allowed", got, row.used)
					}
					f.write("diana.yaml", text(row.now))
					if err := l.Reload(); err != nil {
						t.Fatal(err)
					}
					if got := count(t, l, 150, request); got != row.want {
						t.Errorf("%d more requests are allowed after the reload, want %d", got, row.want)
					}
				})
			}
		}
	}
}

// The log of a change says which rules start with new counters.
func TestLogOfRenamedRule(t *testing.T) {
	t.Parallel()
	var log journal
	f := newFolder(t)
	l := open(t, log.options(), f.write("diana.yaml", "{url: /, rules: [{name: quota, rpu: 100}]}"))
	f.write("diana.yaml", "{url: /, rules: [{name: other, rpu: 100}]}")
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	want := `changes="rule \"quota\": renamed \"other\", its counters begin anew"`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log is\n%s\nwant %s", log.String(), want)
	}
}

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

// followed is a Limiter with a remote configuration: a key in a real Redis.
type followed struct {
	*testing.T
	*diana.Limiter
	redis    *redistest.Server
	file     string // the local configuration
	snapshot string
	log      *journal
}

const key = "limits"

// follow opens a Limiter after prepare, which can change the remote configuration or its Redis.
func follow(t *testing.T, prepare func(f *followed)) *followed {
	t.Helper()
	r := redistest.Start(t)
	dir := t.TempDir()
	f := &followed{T: t, redis: r, file: filepath.Join(dir, "diana.yaml"), snapshot: filepath.Join(dir, "snapshot.yaml"), log: &journal{}}
	f.local("remote: {url: %q, snapshot: %q}\nlimits: [{url: /, rules: [{name: local, unit: hour, rpu: 2, algo: W, align: first}]}]", f.url(), f.snapshot)
	if prepare != nil {
		prepare(f)
	}
	f.open()
	return f
}

func (f *followed) url() string { return "redis://" + f.redis.Addr() + "/0/" + key }

func (f *followed) local(format string, args ...any) {
	f.Helper()
	if err := os.WriteFile(f.file, fmt.Appendf(nil, format, args...), 0o644); err != nil {
		f.Fatal(err)
	}
}

func (f *followed) open() {
	f.Helper()
	begin := time.Now()
	l, err := diana.Options{Logger: slog.New(slog.NewTextHandler(f.log, nil))}.Open(f.file)
	if err != nil {
		f.Fatal(err)
	}
	f.Logf("open after %v", time.Since(begin).Round(time.Millisecond))
	f.Limiter = l
	f.Cleanup(func() { _ = l.Close() })
}

// put writes a document with one rule of that name.
func (f *followed) put(rule string, rpu int) {
	f.Helper()
	f.redis.Must("SET", key, fmt.Sprintf("{url: /, rules: [{name: %s, unit: hour, rpu: %d, algo: W, align: first}]}", rule, rpu))
}

// want waits until the rule is in force for that reason.
func (f *followed) want(rule, reason string) {
	f.Helper()
	testproc.Eventually(f.T, func() bool {
		s := f.Status()
		return s.Rules[0].Name == rule && strings.Contains(s.Config.Reason, reason)
	})
	for name, text := range map[string]string{"local": f.file, "old": f.snapshot, "": f.url()} {
		if s := f.Status().Config.Source; (name == rule || name == "") && s == text {
			return
		}
	}
	f.Errorf("%s is said to come from %s", rule, f.Status().Config.Source)
}

func TestRemoteReplacesLocalLimits(t *testing.T) {
	t.Parallel()
	f := follow(t, func(f *followed) { f.put("remote", 3) })
	f.want("remote", "wins over")
	if got := count(t, f.Limiter, 10, diana.Request{}); got != 3 {
		t.Fatalf("%d allowed, want 3", got)
	}
	f.put("remote", 5)
	testproc.Eventually(t, func() bool { return f.Config().Limits[0].Rules[0].Limit.N == 5 })
	if got := count(t, f.Limiter, 10, diana.Request{}); got != 2 {
		t.Errorf("%d more after the limit went from 3 to 5, want 2", got)
	}
	testproc.Eventually(t, func() bool { return f.log.count(`rule \"remote\": rpu 3 → 5`) == 1 }) // a moment later

	// Documents that are not valid change nothing, and each is logged once.
	version := f.Status().Config.Version
	for i, bad := range []string{"{url: /, rules: [{rpu: many}]}", "", "\xff\xfe", strings.Repeat("#", 5<<20), "redis: {}"} {
		f.redis.Must("SET", key, bad)
		testproc.Eventually(t, func() bool { return f.Reloads()[diana.Reload{Source: "redis", Result: "error"}] == int64(i+1) })
		s := f.Status().Config
		if s.Version != version || s.Remote == nil || s.Remote.Refused == "" || !strings.Contains(s.Reason, "not valid") {
			t.Errorf("%.20q: %+v", bad, s)
		}
	}

	// The settings of the local file stay in force. Its limits do not.
	f.local("remote: {url: %q, snapshot: %q}\nresponse: {status: 429}\nlimits: [{url: /, rules: [{name: local, rpu: 7}]}]", f.url(), f.snapshot)
	testproc.Eventually(t, func() bool { return f.Config().Response.Status == 429 })
	f.want("remote", "not valid")

	f.redis.Must("DEL", key)
	f.want("local", "has no document")
	if _, err := os.Stat(f.snapshot); !os.IsNotExist(err) {
		t.Errorf("a snapshot of what was deleted is left: %v", err)
	}
	f.put("again", 1)
	f.want("again", "wins over")
	if info, err := os.Stat(f.snapshot); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("snapshot: %v, %v", info, err)
	}

	// Another source, and then none.
	f.redis.Must("SET", "other", "{url: /, rules: [{name: other, rpu: 1}]}")
	f.local("remote: {url: %q}", strings.TrimSuffix(f.url(), key)+"other")
	testproc.Eventually(t, func() bool { return f.Status().Rules[0].Name == "other" })
	f.local("{url: /, rules: [{name: local, rpu: 1}]}")
	f.want("local", "no configuration centre")
	f.redis.Must("SET", "other", "{url: /, rules: [{name: not heard, rpu: 1}]}")
	if f.Status().Config.Remote != nil {
		t.Error("there is still a remote configuration")
	}
}

// Whatever happens to the source, the last valid document stays in force.
func TestRemoteFailsAndComesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ harm, heal func(*redistest.Server) }{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, func(f *followed) { f.put("remote", 3) })
			f.want("remote", "wins over")
			fault.harm(f.redis)
			testproc.Eventually(t, func() bool { return !f.Status().Config.Remote.Reached })
			f.want("remote", "out of reach")
			fault.heal(f.redis)
			if name == "killed" { // it has lost its memory
				f.want("local", "has no document")
			}
			testproc.Eventually(t, func() bool { return f.Status().Config.Remote.Reached })
			f.put("new", 1)
			f.want("new", "wins over")
			if a, b := f.log.count("centre is out of reach"), f.log.count("centre is within reach"); a != 1 || b != 1 {
				t.Errorf("%d lines say that the source is lost and %d that it is back, want one each", a, b)
			}
			if n := f.Reloads()[diana.Reload{Source: "redis", Result: "error"}]; n != 1 {
				t.Errorf("%d errors counted, want 1", n)
			}
		})
	}
}

// A change of the source's settings while it is down keeps its last document in force.
func TestRemoteSettingsChangeWhileDown(t *testing.T) {
	t.Parallel()
	f := follow(t, func(f *followed) { f.put("remote", 3) })
	f.want("remote", "wins over")
	f.redis.Freeze()
	testproc.Eventually(t, func() bool { return !f.Status().Config.Remote.Reached })
	f.local("remote: {url: %q}\nresponse: {status: 429}\nlimits: [{url: /, rules: [{name: local, rpu: 7}]}]", f.url())
	testproc.Eventually(t, func() bool { return f.Config().Response.Status == 429 })
	f.want("remote", "out of reach")

	// That document is not used for another source.
	f.local("remote: {url: %q}\nlimits: [{url: /, rules: [{name: local, rpu: 7}]}]", f.url()+"2")
	f.want("local", "has not been reached")
	f.redis.Thaw()
	f.want("local", "has no document")
}

// The next load of the configuration uses a changed authority. A secret that cannot be read rejects the
// configuration.
func TestRemoteSecretsChange(t *testing.T) {
	t.Parallel()
	r, f := secured.Start(t), newFolder(t)
	r.Must("SET", key, "{url: /, rules: [{name: remote, rpu: 1}]}")
	password := f.write("password", secured.Password)
	ca := f.write("ca.pem", string(mustRead(t, redistest.Options{TLS: true}.Start(t).CAFile())))
	l := open(t, quiet, f.write("diana.yaml", fmt.Sprintf(
		"remote: {url: 'rediss://%s/0/%s', username: diana, password: 'file:%s', tls: {ca: %s}}", r.Addr(), key, password, ca)))
	if c := l.Status().Config.Remote; !strings.Contains(c.Error, "unknown authority") {
		t.Fatalf("%+v", c)
	}
	reload := func(want string) {
		t.Helper()
		if got := fmt.Sprint(l.Reload()); got != want {
			t.Errorf("reload: %s, want %s", got, want)
		}
	}
	f.write("ca.pem", string(mustRead(t, r.CAFile())))
	reload("<nil>")
	if s := l.Status(); len(s.Rules) != 1 || !s.Config.Remote.Reached {
		t.Errorf("not reached with the right authority: %+v", s.Config.Remote)
	}
	f.write("ca.pem", "")
	reload("remote.tls: " + ca + ": expected certificates in PEM, found none")
	f.write("password", "")
	f.write("ca.pem", string(mustRead(t, r.CAFile())))
	reload("remote.password: " + password + " is empty")
	if c := l.Status().Config.Remote; !c.Reached {
		t.Errorf("a rejected configuration has an effect: %+v", c)
	}
}

// A start without the source uses the snapshot or the local limits. It uses the source as soon as that
// is available.
func TestRemoteIsDownAtStart(t *testing.T) {
	t.Parallel()
	snapshot := func(f *followed) {
		f.put("old", 3)
		f.open()
		f.want("old", "wins over")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	change := func(old, by string) func(f *followed) {
		return func(f *followed) {
			snapshot(f)
			text, err := os.ReadFile(f.snapshot)
			if err != nil {
				f.Fatal(err)
			}
			if err := os.WriteFile(f.snapshot, bytes.Replace(text, []byte(old), []byte(by), 1), 0o600); err != nil {
				f.Fatal(err)
			}
		}
	}
	for name, state := range map[string]struct {
		prepare      func(*followed)
		rule, reason string
	}{
		"no snapshot":          {func(*followed) {}, "local", "has not been reached: the local limits"},
		"snapshot":             {snapshot, "old", "has not been reached: its snapshot"},
		"changed snapshot":     {change("rpu: 3", "rpu: 9"), "local", "has not been reached: the local limits"},
		"shortened snapshot":   {change("align: first}]}", ""), "local", "has not been reached: the local limits"},
		"not a snapshot":       {change("# diana", "# other"), "local", "has not been reached: the local limits"},
		"another's snapshot":   {change("/0/limits", "/0/others"), "local", "has not been reached: the local limits"},
		"refused, no snapshot": {func(f *followed) { f.redis.Must("SET", key, "nonsense") }, "local", "not valid: the local limits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, func(f *followed) {
				state.prepare(f)
				if !strings.HasPrefix(name, "refused") {
					f.redis.Freeze()
				}
			})
			f.want(state.rule, state.reason)
			if s := f.Status().Config.Remote; s.Reached != strings.HasPrefix(name, "refused") || (s.Error == "") != s.Reached {
				t.Errorf("%+v", s)
			}
			if n := f.Reloads()[diana.Reload{Source: "redis", Result: "error"}]; n != 1 {
				t.Errorf("%d errors counted, want 1", n)
			}
			if s := f.Status().Config.Remote; !s.Reached && !strings.Contains(s.Error, "no answer within 3s") {
				t.Errorf("%s, which does not tell", s.Error)
			}
			if s := f.Status(); s.Degraded {
				t.Error("the Limiter is degraded because the source is down")
			}
			if !f.Status().Config.Remote.Reached {
				f.redis.Thaw()
			}
			f.put("new", 1)
			f.want("new", "wins over")
		})
	}
}

// A snapshot can hold the largest document that is allowed.
func TestRemoteOfTheLargestDocument(t *testing.T) {
	t.Parallel()
	f := follow(t, func(f *followed) {
		text := "{url: /, rules: [{name: old, rpu: 1}]}\n#"
		f.redis.Must("SET", key, text+strings.Repeat("x", bounds.MaxConfig-len(text)))
		f.open()
		f.want("old", "wins over")
		_ = f.Close()
		f.redis.Kill()
	})
	f.want("old", "its snapshot")
}

// A document that another mistake keeps from being in force is in force when the mistake is corrected.
func TestRemoteTakesEffectLater(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	password := dir.write("password", "x")
	f := follow(t, func(f *followed) {
		f.put("remote", 3)
		f.local("redis: {url: 'redis://127.0.0.1:1', password: 'file:%s'}\nremote: {url: %q}", password, f.url())
	})
	f.want("remote", "wins over")
	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	f.put("new", 1)
	testproc.Eventually(t, func() bool { return strings.Contains(f.Status().Config.Remote.Refused, "redis.password") })
	f.want("remote", "last good document")
	dir.write("password", "x")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	f.want("new", "wins over")
}

// The same is true of a document that was found at the start.
func TestRemoteOfTheStartTakesEffectLater(t *testing.T) {
	t.Parallel()
	dir := newFolder(t)
	remote := dir.write("remote.yaml", "{url: /, rules: [{name: remote, rpu: 1, algo: here, scope: global}]}")
	text := func(more string) string {
		return fmt.Sprintf("%s\nremote: {url: 'file://%s'}\nlimits: [{url: /, rules: [{name: local, rpu: 1}]}]", more, remote)
	}
	o := quiet
	o.Vocabulary = config.DefaultVocabulary()
	o.Vocabulary.Algorithms = append(o.Vocabulary.Algorithms, withoutScript())
	l := open(t, o, dir.write("diana.yaml", text("redis: {url: 'redis://127.0.0.1:1'}")))
	if s := l.Status(); s.Rules[0].Name != "local" || !strings.Contains(s.Config.Remote.Refused, "no script") {
		t.Fatalf("%+v", s)
	}
	dir.write("diana.yaml", text(""))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	if s := l.Status(); s.Rules[0].Name != "remote" || s.Config.Remote.Refused != "" {
		t.Errorf("%+v", s)
	}
}

// A configuration that names another source and is rejected leaves the snapshot as it is.
func TestRejectedRemoteKeepsSnapshot(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"other.yaml", "absent.yaml"} {
		dir := newFolder(t)
		dir.write("remote.yaml", "{url: /, rules: [{name: remote, rpu: 1}]}")
		dir.write("other.yaml", "{url: /, rules: [{name: other, rpu: 1}]}")
		snapshot := filepath.Join(dir.dir, "snapshot.yaml")
		text := func(remote string) string {
			return fmt.Sprintf("remote: {url: 'file://%s', snapshot: %s}", filepath.Join(dir.dir, remote), snapshot)
		}
		l := open(t, quiet, dir.write("diana.yaml", text("remote.yaml")))
		before := string(mustRead(t, snapshot))
		dir.write("diana.yaml", text(other)+"\nredis: {url: 'redis://127.0.0.1:1', password: 'file:/absent'}")
		if err := l.Reload(); err == nil || l.Status().Rules[0].Name != "remote" {
			t.Fatalf("reload: %v, %+v", err, l.Status().Rules)
		}
		if after, err := os.ReadFile(snapshot); err != nil || string(after) != before {
			t.Errorf("%s: %v, the snapshot is\n%swas\n%s", other, err, after, before)
		}
	}
}

// Close does not wait for a source that has not answered its first request.
func TestCloseWhileRemoteHangs(t *testing.T) {
	t.Parallel()
	asked, dir := make(chan struct{}, 10), newFolder(t)
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.Close() })
	go func() {
		for {
			c, err := hung.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			asked <- struct{}{}
		}
	}()
	l := open(t, quiet, dir.write("diana.yaml", "{url: /, rules: [{rpu: 1}]}"))
	dir.write("diana.yaml", fmt.Sprintf("remote: {url: 'http://%s/'}", hung.Addr()))
	<-asked
	if err := l.Close(); err != nil || l.Config().Remote != nil {
		t.Errorf("%v, and the configuration was changed after %v", err, l.Config().Remote)
	}
}

// A file may leave its limits to the remote configuration. The log says when there are none.
func TestRemoteWithoutLocalLimits(t *testing.T) {
	t.Parallel()
	f := follow(t, func(f *followed) { f.local("remote: {url: %q}", f.url()) })
	if n := f.log.count("nothing is limited"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	f.put("remote", 3)
	testproc.Eventually(t, func() bool { return len(f.Status().Rules) == 1 })
	if n := f.log.count("nothing is limited"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	f.redis.Must("DEL", key)
	testproc.Eventually(t, func() bool { return f.log.count("nothing is limited") == 2 })
}

// A snapshot overwrites no other file, and its removal removes no other file.
func TestSnapshotOverwritesNoOtherFile(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"the configuration", "a folder"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			f := follow(t, func(f *followed) {
				f.put("remote", 3)
				if other == "the configuration" {
					f.snapshot = f.file
				} else {
					f.snapshot = t.TempDir()
				}
				f.local("remote: {url: %q, snapshot: %q}\nlimits: [{url: /, rules: [{name: local, rpu: 2}]}]", f.url(), f.snapshot)
			})
			before := string(mustRead(t, f.file))
			f.want("remote", "wins over")
			f.redis.Must("DEL", key)
			f.want("local", "has no document")
			testproc.Eventually(t, func() bool { return f.log.count("is not a snapshot") == 2 })
			if _, err := os.Stat(f.snapshot); err != nil || string(mustRead(t, f.file)) != before {
				t.Errorf("%v, and the configuration is\n%s", err, mustRead(t, f.file))
			}
		})
	}
}

// A snapshot is no longer used when its source answers that it has no document.
func TestSnapshotEndsWithItsDocument(t *testing.T) {
	t.Parallel()
	f := follow(t, func(f *followed) {
		f.put("old", 3)
		f.open()
		f.want("old", "wins over")
		_ = f.Close()
		f.redis.Must("DEL", key)
		f.redis.Freeze()
	})
	f.want("old", "its snapshot")
	f.redis.Thaw()
	f.want("local", "has no document")
}

// While the document changes a thousand times, each request is evaluated by one of the versions, never
// by parts of two.
func TestRemoteChangesUnderLoad(t *testing.T) {
	t.Parallel()
	f := follow(t, nil)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				d, err := f.Take(context.Background(), diana.Request{Path: "/a"})
				if err != nil || len(d.Verdicts) == 0 {
					t.Errorf("%v, %d verdicts", err, len(d.Verdicts))
				}
				for _, v := range d.Verdicts {
					if first, _, _ := strings.Cut(d.Verdicts[0].Rule.Name, " "); !strings.HasPrefix(v.Rule.Name, first+" ") && first != "local" {
						t.Errorf("rules %q and %q on one request", d.Verdicts[0].Rule.Name, v.Rule.Name)
					}
				}
				d.Done()
			}
		})
	}
	const versions = 300
	for i := range versions {
		f.redis.Must("SET", key, fmt.Sprintf("[{url: /, rules: [{name: v%[1]d first, rpu: 1000000}, {name: v%[1]d second, rpu: 1000000}]}, {url: /a, rules: [{name: v%[1]d third, rpu: 1000000}]}]", i))
	}
	f.want(fmt.Sprintf("v%d first", versions-1), "wins over")
	stop()
	wg.Wait()
}

// A valid document from a source that is a file does not make the last reload successful while the local
// file is not valid.
func TestLastReloadOfTwoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	local, document := filepath.Join(dir, "diana.yaml"), filepath.Join(dir, "centre.yaml")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := fmt.Sprintf("remote: {url: %q}\nlimits: [{url: /, rules: [{rpu: 1}]}]\n", "file://"+document)
	write(local, good)
	write(document, "limits: [{url: /, rules: [{name: first, rpu: 1}]}]")
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(local, good+"bogus: 1\n")
	testproc.Eventually(t, func() bool { return !l.Status().Config.LastReloadSuccessful })
	write(document, "limits: [{url: /, rules: [{name: second, rpu: 1}]}]")
	testproc.Eventually(t, func() bool { return l.Status().Rules[0].Name == "second" })
	if l.Status().Config.LastReloadSuccessful {
		t.Error("the last reload counts as successful while the local file is not valid")
	}
	write(local, good)
	testproc.Eventually(t, func() bool { return l.Status().Config.LastReloadSuccessful })
}

// journaled returns a Limiter with a configuration, and its log.
func journaled(t *testing.T, yaml string) (*diana.Limiter, *journal) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	l, err := j.options().New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, j
}

// handOver passes the counters of one Limiter to another.
func handOver(t *testing.T, from, to *diana.Limiter) {
	t.Helper()
	old, next := net.Pipe()
	took := make(chan error, 1)
	go func() { took <- to.TakeOver(next) }()
	if err := from.HandOver(old); err != nil {
		t.Fatal(err)
	}
	if err := <-took; err != nil {
		t.Fatal(err)
	}
}

// Two Limiters keep one limit after a hand-over. A log line names the rules whose counters begin again.
func TestHandOver(t *testing.T) {
	t.Parallel()
	const kept = "{name: kept, rpu: 5, unit: 1h}, {name: slots, algo: C, rpu: 2}, {name: global, rpu: 5, unit: 1h, scope: global}"
	old, _ := journaled(t, "url: /\nrules: ["+kept+", {name: changed, rpu: 5, unit: 1h}, {name: gone, rpu: 9}]")
	next, log := journaled(t, "url: /\nrules: ["+kept+", {name: changed, rpu: 5, unit: 1m}]")
	takes := func(l *diana.Limiter) diana.Decision {
		d, err := l.Take(context.Background(), device("/", "a"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	held := takes(old)
	handOver(t, old, next)
	if !strings.Contains(log.String(), "rules=\"[changed gone]\"") {
		t.Error(log)
	}
	other := takes(next)
	if !held.Allowed || !other.Allowed || ask(t, next, device("/", "a")).Allowed || ask(t, old, device("/", "a")).Allowed {
		t.Error("want two slots")
	}
	held.Done()
	other.Done()
	if a, b := count(t, old, 2, device("/", "a")), count(t, next, 3, device("/", "a")); a != 2 || b != 1 {
		t.Errorf("%d and %d of the 3 that are left", a, b)
	}
	if ask(t, old, device("/", "a")).Allowed {
		t.Error("over the limit")
	}
}

// While Redis is away the successor has the share of the gateway before it, and what that has used. Redis gets the sum.
func TestHandOverWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 1s}\nlimits: [{url: /, rules: [{rpu: 10, unit: 744h, scope: global}]}]", r.URL())
	all := sharing(t, 2, yaml)
	old, other := all[0], all[1]
	x := device("/", "a")
	count(t, old, 2, x)
	r.Freeze()
	ask(t, old, x) // nobody knows whether Redis has counted it
	testproc.Eventually(t, func() bool { return old.Status().Degraded })
	next, _ := journaled(t, yaml)
	handOver(t, old, next)
	if a, b, c := count(t, next, 1, x), count(t, old, 1, x), count(t, next, 1, x); a+b != 2 || c != 0 {
		t.Errorf("%d, %d and %d allowed, want 1, 1 and 0", a, b, c)
	}
	r.Thaw()
	for _, l := range []*diana.Limiter{old, next} {
		if l == next {
			old.Close()
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	testproc.Eventually(t, func() bool { // for a while shares apply too
		n += count(t, other, 10, x)
		return n >= 5
	})
	if n += count(t, other, 10, x); n != 5 {
		t.Errorf("%d allowed, want 5", n)
	}
}

// A Limiter that takes nothing over begins again, and the old one continues.
func TestHandOverIsRejected(t *testing.T) {
	t.Parallel()
	const yaml = "url: /\nrules: [{rpu: 2, unit: 1h}]"
	old, _ := journaled(t, yaml)
	next, _ := journaled(t, yaml)
	count(t, next, 1, device("/", "a")) // too late
	a, b := net.Pipe()
	rejected := make(chan error, 1)
	go func() {
		rejected <- next.TakeOver(b)
		b.Close()
	}()
	if err := old.HandOver(a); err != nil {
		t.Error(err)
	}
	if err := <-rejected; err == nil {
		t.Error("a Limiter that has counted takes over")
	}
	if a, b := count(t, old, 3, device("/", "a")), count(t, next, 2, device("/", "a")); a != 2 || b != 1 {
		t.Errorf("the old one allows %d, want 2, and the new one %d, want 1", a, b)
	}
}
