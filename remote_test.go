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
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// followed is a Limiter with a remote configuration: a key in a real Redis.
type followed struct {
	*testing.T
	*diana.Limiter
	redis    *redistest.Server
	file     string // the local configuration
	snapshot string
	log      *lockedLog
}

const key = "limits"

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// follow opens a Limiter after prepare, which can change the remote configuration or its Redis.
func follow(t *testing.T, prepare func(f *followed)) *followed {
	t.Helper()
	r := redistest.Start(t)
	dir := t.TempDir()
	f := &followed{T: t, redis: r, file: filepath.Join(dir, "diana.yaml"), snapshot: filepath.Join(dir, "snapshot.yaml"), log: &lockedLog{}}
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
	const versions = 1000
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
