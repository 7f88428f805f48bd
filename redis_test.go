// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// secured is a Redis with TLS, a user and a password.
var secured = redistest.Options{Username: "diana", Password: `s3cret "and" strange`, TLS: true}

// folder is where a test keeps its files.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

// write writes a file atomically and returns its path.
func (f folder) write(name, text string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// journal is a log that a test reads while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) options() diana.Options {
	return diana.Options{Logger: slog.New(slog.NewTextHandler(j, nil))}
}

// open is Open for a test.
func open(t *testing.T, o diana.Options, file string) *diana.Limiter {
	t.Helper()
	l, err := o.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func connected(l *diana.Limiter) func() bool { return func() bool { return !l.Status().Degraded } }

// clients returns how many connections a server has, without its own.
func clients(r *redistest.Server) int {
	list, _ := r.Must("CLIENT", "LIST").(string)
	return strings.Count(list, "\n") - 1
}

// grant makes a user of a server with the permissions that the documentation lists.
func grant(r *redistest.Server, password string) {
	r.Must("ACL", "SETUSER", "gateway", "on", ">"+password, "~diana:*", "+@all", "-@dangerous", "+role")
}

const fiveHundred = `
limits:
- url: /
  rules: [{unit: day, rpu: 500, algo: SL, scope: global}]
`

// counts checks that gateways of one configuration count together.
func counts(t *testing.T, redis string) {
	t.Helper()
	all := sharing(t, 2, redis+fiveHundred)
	if got := sum(crowd(t, all, 16, 20, diana.Request{Path: "/"})); got != 500 {
		t.Errorf("two gateways let %d pass, want 500", got)
	}
	for _, l := range all {
		_ = l.Close()
	}
}

func TestRedisWithTLSAndPassword(t *testing.T) {
	t.Parallel()
	r, f := secured.Start(t), newFolder(t)
	password := f.write("password", secured.Password+"\n")
	counts(t, fmt.Sprintf(`
redis:
  url: rediss://%s
  username: diana
  password: file:%s
  tls: {ca: %s}
  timeout: 10s`, r.Addr(), password, r.CAFile()))
}

func TestSentinelWithTLSAndPassword(t *testing.T) {
	t.Parallel()
	s := secured.StartSentinel(t)
	for _, node := range s.Nodes {
		grant(node, "of the nodes")
	}
	redis := fmt.Sprintf(`
redis:
  username: gateway
  password: of the nodes
  tls: {ca: %s}
  timeout: 10s
  sentinel: {master: %s, addresses: ["%s"]`, s.Nodes[0].CAFile(), s.MasterName, strings.Join(s.Addrs(), `", "`))
	counts(t, redis+"}")

	// The Sentinels now need a password too, and do not accept the user of the nodes.
	for _, sentinel := range s.Sentinels {
		sentinel.Must("ACL", "SETUSER", "watcher", "on", ">watchword", "allchannels", "+@all")
		sentinel.Must("ACL", "SETUSER", "default", "off")
	}
	s.Nodes[0].Must("FLUSHALL")
	counts(t, redis+", username: watcher, password: watchword}")
}

// A password, right or wrong, is in no log and no status.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	r, f := secured.Start(t), newFolder(t)
	for name, password := range map[string]string{
		"text": "wr0ng",
		"file": "file:" + f.write("password", "wr0ng\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j journal
			l := open(t, j.options(), newFolder(t).write("diana.yaml", fmt.Sprintf(`
redis: {url: "rediss://%s", username: diana, password: %q, tls: {ca: %s}}
limits:
- url: /
  rules: [{unit: day, rpu: 500, scope: global}]
`, r.Addr(), password, r.CAFile())))
			testproc.Eventually(t, func() bool { return strings.Contains(j.String(), "WRONGPASS") })
			if got := count(t, l, 600, diana.Request{Path: "/"}); got != 500 || !l.Status().Degraded {
				t.Errorf("%d passed without Redis, want 500", got)
			}
			status, err := json.Marshal(l.Status())
			if err != nil {
				t.Fatal(err)
			}
			for _, shown := range []string{j.String(), string(status), fmt.Sprint(l.RedisErrors()), fmt.Sprintf("%+v", l.Config().Redis)} {
				if strings.Contains(shown, "wr0ng") || strings.Contains(shown, "s3cret") {
					t.Errorf("the password is shown: %s", shown)
				}
			}
		})
	}
}

// The next connection uses a changed password. The next load of the configuration uses a changed
// authority.
func TestSecretsChange(t *testing.T) {
	t.Parallel()
	r, f := secured.Start(t), newFolder(t)
	grant(r, "first")
	password := f.write("password", "first")
	other := mustRead(t, redistest.Options{TLS: true}.Start(t).CAFile())
	ca := f.write("ca.pem", string(other))
	var j journal
	l := open(t, j.options(), f.write("diana.yaml", fmt.Sprintf(`
redis: {url: "rediss://%s", username: gateway, password: "file:%s", tls: {ca: %s}, timeout: 10s}
`, r.Addr(), password, ca)+fiveHundred))

	reload := func(want string) {
		t.Helper()
		err := l.Reload()
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("reload: %s, want %s", got, want)
		}
	}
	testproc.Eventually(t, func() bool { return strings.Contains(j.String(), "certificate signed by unknown authority") })
	f.write("ca.pem", string(mustRead(t, r.CAFile())))
	reload("<nil>")
	testproc.Eventually(t, connected(l))

	r.Must("ACL", "SETUSER", "gateway", "resetpass", ">second")
	r.Must("CLIENT", "KILL", "USER", "gateway")
	testproc.Eventually(t, func() bool { return l.Status().Degraded })
	f.write("password", "second")
	testproc.Eventually(t, connected(l))

	// A secret that cannot be read rejects the configuration, and the old one stays in force.
	f.write("password", "")
	reload("redis.password: " + password + " is empty")
	f.write("password", "second")
	f.write("ca.pem", "")
	reload("redis.tls: " + ca + ": expected certificates in PEM, found none")
	if l.Status().Degraded {
		t.Error("a rejected configuration has an effect")
	}
}

func TestOpenWithoutSecrets(t *testing.T) {
	t.Parallel()
	file := newFolder(t).write("diana.yaml", `
redis:
  password: file:/absent/password
  tls: {ca: /absent/ca.pem}
  sentinel: {master: m, addresses: ["127.0.0.1:1"], password: env:DIANA_TEST_ABSENT}
`+fiveHundred)
	_, err := diana.Open(file)
	if err == nil {
		t.Fatal("opened")
	}
	if want := `redis.password: open /absent/password: no such file or directory
redis.sentinel.password: the environment variable DIANA_TEST_ABSENT is not set, or empty
redis.tls: open /absent/ca.pem: no such file or directory`; err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
}

// withoutScript returns an algorithm that has no script.
func withoutScript() limit.Algorithm {
	a := limit.TokenBucket()
	a.Names = []string{"here"}
	a.New = func(l limit.Limit) (limit.Meter, error) {
		m, err := limit.TokenBucket().New(l)
		return struct{ limit.Meter }{m}, err
	}
	return a
}

// A configuration that changes redis and is rejected for another reason changes nothing. Neither a
// rejected nor an accepted configuration leaves a connection behind.
func TestRejectedRedisChangesNothing(t *testing.T) {
	t.Parallel()
	from, to, f := redistest.Start(t), redistest.Start(t), newFolder(t)
	o := diana.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Vocabulary: config.DefaultVocabulary()}
	o.Vocabulary.Algorithms = append(o.Vocabulary.Algorithms, withoutScript())
	text := func(r *redistest.Server, algo string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: 10s}\nlimits: [{url: /, rules: [{unit: day, rpu: 5, algo: %s, scope: global}]}]", r.URL(), algo)
	}
	l := open(t, o, f.write("diana.yaml", text(from, "TB")))
	inRedis := func() bool {
		d, err := l.Take(context.Background(), diana.Request{Path: "/"})
		d.Done()
		return err == nil && !d.Degraded
	}
	testproc.Eventually(t, inRedis)

	f.write("diana.yaml", text(to, "here"))
	if err := l.Reload(); err == nil || !strings.Contains(err.Error(), "no script") {
		t.Fatalf("reload: %v", err)
	}
	if !inRedis() {
		t.Error("degraded by a configuration that was rejected")
	}
	testproc.Eventually(t, func() bool { return clients(to) == 0 })
	if !inRedis() || clients(from) == 0 {
		t.Error("degraded later by a configuration that was rejected")
	}

	f.write("diana.yaml", text(to, "TB"))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, inRedis)
	testproc.Eventually(t, func() bool { return clients(from) == 0 })
	if clients(to) == 0 {
		t.Error("no connection to the new Redis")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return clients(to) == 0 })
}
