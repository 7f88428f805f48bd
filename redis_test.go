// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
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

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// journal is a log that a test reads while it is written.
type journal struct{ testproc.Buffer }

// count returns how often the log has a text.
func (j *journal) count(text string) int { return strings.Count(j.String(), text) }

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

// gateways returns Limiters that share a Redis, as soon as all of them use it.
func gateways(t *testing.T, n int, url, timeout, limits string) []*diana.Limiter {
	t.Helper()
	return sharing(t, n, fmt.Sprintf("redis: {url: %q, timeout: %s}\nlimits:\n%s", url, timeout, limits))
}

// A guest is no gateway, so the share of each gateway stays as it is.
func TestGuest(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 5s}\nlimits: [{url: /, rules: [{unit: 744h, rpu: 100, scope: global}]}]", r.URL())
	guest, err := diana.Options{Guest: true, Logger: slog.New(slog.DiscardHandler)}.New(parsed(t, yaml))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guest.Close() })
	testproc.Eventually(t, func() bool { return !guest.Status().Degraded })
	sharing(t, 2, yaml) // each counts two
	testproc.Eventually(t, func() bool { return guest.Status().Gateways == 2 })
	if n := r.Must("ZCARD", "diana:gateways"); fmt.Sprint(n) != "2" {
		t.Errorf("%v gateways, want 2", n)
	}
	if left := remaining(t, guest); left != 100 {
		t.Errorf("the guest sees %d left, want 100", left)
	}
}

// sharing returns Limiters of one configuration, as soon as all of them use its Redis.
func sharing(t *testing.T, n int, yaml string) (all []*diana.Limiter) {
	t.Helper()
	for range n {
		all = append(all, limiter(t, yaml))
	}
	for _, l := range all {
		testproc.Eventually(t, func() bool { s := l.Status(); return !s.Degraded && s.Gateways == n })
	}
	return all
}

// crowd sends requests to each gateway, many at a time, and returns how many each gateway allows.
func crowd(t *testing.T, all []*diana.Limiter, callers, each int, r diana.Request) (allowed []int) {
	t.Helper()
	counts := make([]atomic.Int64, len(all))
	var wg sync.WaitGroup
	for i, l := range all {
		for range callers {
			wg.Go(func() {
				for range each {
					d, err := l.Take(context.Background(), r)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						counts[i].Add(1)
					}
					d.Done()
				}
			})
		}
	}
	wg.Wait()
	for i := range counts {
		allowed = append(allowed, int(counts[i].Load()))
	}
	return allowed
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestGatewaysShareGlobalLimits(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 3, r.URL(), "10s", `
- url: /
  rules: [{name: local, unit: hour, rpu: 100000}]
- url: /tb
  rules: [{unit: day, rpu: 500, algo: TB, scope: global, actor: device}]
- url: /sl
  rules: [{unit: day, rpu: 500, algo: SL, scope: global}]
- url: /mixed
  rules:
    - {name: wide, unit: hour, rpu: 1000, algo: SL}
    - {name: narrow, unit: day, rpu: 5, algo: SW, scope: global}
- url: /places
  rules: [{name: places, rpu: 2, algo: C, scope: global}]
`)
	for _, path := range []string{"/tb", "/sl"} {
		if got := sum(crowd(t, all, 32, 20, device(path, "x"))); got != 500 {
			t.Errorf("%s: three gateways let %d pass, want 500", path, got)
		}
	}

	// If Redis refuses a request, the local limits are refunded.
	if got := crowd(t, all[:1], 8, 50, diana.Request{Path: "/mixed"}); got[0] != 5 {
		t.Errorf("/mixed: %d passed, want 5", got[0])
	}
	d, err := all[0].Take(context.Background(), diana.Request{Path: "/mixed"})
	if err != nil || d.Allowed {
		t.Fatal(d, err)
	}
	for _, v := range d.Verdicts {
		if v.Rule.Name == "wide" && v.Remaining != 995 {
			t.Errorf("the wide limit has %d left, want 995", v.Remaining)
		}
	}
	d.Done()

	// All gateways share the slots, which are free again after Done.
	var inside []diana.Decision
	for i, l := range all {
		d, err := l.Take(context.Background(), diana.Request{Path: "/places"})
		if err != nil || d.Allowed != (i < 2) {
			t.Errorf("place %d: %v %v", i, d.Allowed, err)
		}
		inside = append(inside, d)
	}
	for i := range inside {
		inside[i].Done()
	}
	testproc.Eventually(t, func() bool { return ask(t, all[2], diana.Request{Path: "/places"}).Allowed })
}

// Redis fails and comes back. No request fails, and all gateways together allow no more than the limit.
// Requests that were allowed without Redis are debited there, and a Redis that is back empty gets what the
// gateways remember. So nothing is left in either case.
func TestRedisFailsAndComesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		harm, heal func(*redistest.Server)
	}{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			all := gateways(t, 3, r.URL(), "500ms", `
- url: /
  rules: [{unit: day, rpu: 300, algo: TB, scope: global}]
- url: /whole
  rules: [{unit: day, rpu: 50, algo: W, scope: global, on_error: local}]
- url: /closed
  rules: [{unit: day, rpu: 50, scope: global, on_error: closed}]
`)
			if got := sum(crowd(t, all, 4, 10, diana.Request{Path: "/"})); got != 120 {
				t.Errorf("%d of 120 passed with Redis", got)
			}
			fault.harm(r)
			for _, l := range all {
				ask(t, l, diana.Request{Path: "/"}) // detects that Redis is down, without an error
			}
			for _, l := range all {
				testproc.Eventually(t, func() bool { return l.Status().Degraded })
			}
			// Each gateway has a share of 100, of which it has used 40, and one more just now.
			alone := crowd(t, all, 16, 20, diana.Request{Path: "/"})
			for i, got := range alone {
				if got < 58 || got > 60 {
					t.Errorf("gateway %d let %d more pass without Redis, want the 59 that are left of its share", i, got)
				}
			}
			if got := crowd(t, all[:1], 4, 50, diana.Request{Path: "/closed"}); got[0] != 0 {
				t.Errorf("/closed: %d passed without Redis", got[0])
			}
			fault.heal(r)
			for _, l := range all {
				testproc.Eventually(t, func() bool { return !l.Status().Degraded })
			}
			// The status changes just before the decisions do. Shares do not hold for a unit of a day.
			testproc.Eventually(t, func() bool { return !ask(t, all[0], diana.Request{Path: "/closed"}).Degraded })
			if got := sum(crowd(t, all, 16, 20, diana.Request{Path: "/"})); got > 1 {
				t.Errorf("%d more passed with Redis again, want 0", got)
			}
			if errs := all[0].RedisErrors(); len(errs) == 0 {
				t.Error("no failed call has been counted")
			}
		})
	}
}

// While Redis is away, all gateways together allow what it had left, also if one of them has had nearly all
// requests. The same holds when it comes back empty.
func TestOutageAllowsWhatWasLeft(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"W", "TB", "SW", "SL"} {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			all := gateways(t, 3, r.URL(), "5s", fmt.Sprintf(`
- url: /most
  rules: [{unit: day, rpu: 1000, algo: %s, scope: global}]
- url: /used
  rules: [{unit: day, rpu: 60, algo: %[1]s, scope: global}]
`, algo))
			allowed := sum(crowd(t, all[:1], 7, 98, diana.Request{Path: "/most"})) + sum(crowd(t, all[1:], 1, 7, diana.Request{Path: "/most"}))
			if allowed != 700 {
				t.Fatalf("%d of 700 passed with Redis", allowed)
			}
			if got := sum(crowd(t, all[:1], 1, 58, diana.Request{Path: "/used"})) + sum(crowd(t, all[1:], 1, 1, diana.Request{Path: "/used"})); got != 60 {
				t.Fatalf("/used: %d of 60 passed with Redis", got)
			}
			r.Kill()
			for _, l := range all {
				if ask(t, l, diana.Request{Path: "/most"}).Allowed {
					allowed++
				}
			}
			for _, l := range all {
				testproc.Eventually(t, func() bool { return l.Status().Degraded })
			}
			allowed += sum(crowd(t, all, 8, 50, diana.Request{Path: "/most"}))
			if allowed < 890 || allowed > 1010 { // the first gateway has used more than its share
				t.Errorf("%d of 1000 have passed before Redis is back", allowed)
			}
			if got := sum(crowd(t, all, 4, 20, diana.Request{Path: "/used"})); got > 1 { // the first gateways do not know of the last request
				t.Errorf("/used: %d more passed without Redis, want at most 1", got)
			}
			r.Restart()
			for _, l := range all {
				testproc.Eventually(t, func() bool { return !l.Status().Degraded && !ask(t, l, diana.Request{Path: "/used"}).Degraded })
			}
			testproc.Eventually(t, func() bool { // for a while shares apply too
				allowed += sum(crowd(t, all, 8, 50, diana.Request{Path: "/most"}))
				return allowed >= 990
			})
			if allowed += sum(crowd(t, all, 8, 50, diana.Request{Path: "/most"})); allowed > 1010 {
				t.Errorf("%d of 1000 have passed when Redis is back", allowed)
			}
		})
	}
}

// A limit that was used up stays used up without Redis, also if many requests ask for it at once at first.
func TestOutageMeetsACrowd(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	const actors, n = 1000, 10
	all := gateways(t, 1, r.URL(), "5s", fmt.Sprintf("- url: /\n  rules: [{actor: account, unit: day, rpu: %d, scope: global}]\n", n))
	of := func(actor int) diana.Request {
		return diana.Request{Path: "/", Actors: map[string]string{"account": fmt.Sprint(actor)}}
	}
	for i := range actors {
		if got := sum(crowd(t, all, n+1, 1, of(i))); got != n {
			t.Fatalf("%d of %d passed with Redis", got, n)
		}
	}
	r.Kill()
	testproc.Eventually(t, func() bool { return all[0].Status().Degraded })
	for i := range actors {
		if got := sum(crowd(t, all, 8, 2, of(i))); got != 0 {
			t.Errorf("account %d: %d more passed without Redis", i, got)
		}
	}
}

// Requests that wait for Redis when it fails get no more than what it had left either.
func TestOutageMeetsCallsInFlight(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"W", "TB", "SW", "SL"} {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			all := gateways(t, 2, r.URL(), "1s", fmt.Sprintf("- url: /\n  rules: [{unit: day, rpu: 61, algo: %s, scope: global, cost: header:X-Cost}]\n", algo))
			of := func(cost int64) diana.Request {
				return diana.Request{Path: "/", Costs: map[string]int64{"X-Cost": cost}}
			}
			if !ask(t, all[0], of(58)).Allowed || !ask(t, all[1], of(2)).Allowed || ask(t, all[1], of(2)).Allowed {
				t.Fatal("want 60 of 61 used")
			}
			r.Freeze()
			if got := sum(crowd(t, all[1:], 20, 1, of(1))); got != 0 {
				t.Errorf("%d more passed, want 0: half of what was left", got)
			}
			r.Thaw()
		})
	}
}

// TestShareRefusesForAWhile sends a request that is too much for the share of a gateway, but not for
// the limit. Without Redis it is refused only for a while.
func TestShareRefusesForAWhile(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "500ms", `
- {url: /, rules: [{unit: day, rpu: 4, algo: W, scope: global, cost: "client:Cost"}]}
`)
	asked := func(cost string) diana.Decision {
		h := httptest.NewRequest("GET", "/", nil)
		h.Header.Set("Cost", cost)
		return ask(t, all[0], diana.Request{HTTP: h})
	}
	if d := asked("5"); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("5 of 4, with Redis: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
	r.Kill()
	testproc.Eventually(t, func() bool { return asked("1").Degraded })
	if d := asked("3"); d.Allowed || d.RetryAfter == 0 {
		t.Errorf("3 of a share of 2: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
	if d := asked("5"); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("5 of 4, without Redis: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
}

// TestWaitIsTheLongestAndNotTheSum queues requests under a local and a global rule. Each waits for the longer of
// the two times. The queues have a slot more than requests wait: requests that arrive at once
// read the clock in any order, so the earliest reading can find all the others waiting. A busy machine can be late by any
// time, so the least of several tries counts: the sum is always 6 s or more.
func TestWaitIsTheLongestAndNotTheSum(t *testing.T) {
	t.Parallel()
	l := gateways(t, 1, redistest.Start(t).URL(), "10s", `
- url: /
  rules:
    - {name: here, actor: device, unit: second, rpu: 1, queue: 4, algo: LB}
    - {name: all, actor: device, unit: second, rpu: 1, queue: 4, algo: LB, scope: global}
`)[0]
	var longest atomic.Int64
	for try := range 5 {
		longest.Store(0)
		var wg sync.WaitGroup
		for range 4 { // at 0, 1, 2 and 3 s
			wg.Go(func() {
				d, err := l.Take(context.Background(), device("/", fmt.Sprint(try)))
				if err != nil || !d.Allowed {
					t.Errorf("allowed %v after %v, %v", d.Allowed, d.Delayed, err)
				}
				d.Done()
				for n := longest.Load(); int64(d.Delayed) > n && !longest.CompareAndSwap(n, int64(d.Delayed)); n = longest.Load() {
				}
			})
		}
		wg.Wait()
		if time.Duration(longest.Load()) <= 5900*time.Millisecond {
			return
		}
	}
	t.Errorf("the last waited for %v, want 3 s, and not the sum of both", time.Duration(longest.Load()))
}

// bound is a configuration with a global rule of one algorithm, and another rule without requests.
const bound = `
max_keys: %d
redis: {url: %q, timeout: 10s}
limits:
- {url: /flood, rules: [{name: flooded, actor: device, scope: global, %s}]}
- {url: /other, rules: [{name: other, actor: device, unit: day, rpu: 1, scope: global}]}
`

// invent sends requests of n actors, many at a time.
func invent(t *testing.T, l *diana.Limiter, n int) {
	t.Helper()
	const callers = 64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				d, err := l.Take(context.Background(), device("/flood", fmt.Sprint("invented ", i)))
				if err != nil {
					t.Error(err)
				}
				d.Done()
			}
		})
	}
	wg.Wait()
}

// countersIn returns how many counters are in a server. Keys of the store itself do not count: their
// names are not hashes of 128 bits.
func countersIn(t *testing.T, r *redistest.Server) (n int) {
	t.Helper()
	keys, ok := r.Must("KEYS", "diana:*").([]any)
	if !ok {
		t.Fatal("KEYS returned no list")
	}
	for _, k := range keys {
		if _, name, _ := strings.Cut(k.(string), ":"); len(name) == 22 {
			n++
		}
	}
	return n
}

// Invented actors make no more counters in Redis than max_keys, whatever the algorithm and on_error.
// A known actor keeps its exact limit.
func TestRedisIsBounded(t *testing.T) {
	t.Parallel()
	const rules = 2
	maxKeys, invented := 5000, 30_000
	if race.Enabled || testing.Short() {
		maxKeys, invented = 1000, 1500
	}
	for _, algo := range []string{"TB", "W", "SW", "SL", "LB"} {
		for _, onError := range []string{"share", "closed", "open"} {
			t.Run(algo+"/"+onError, func(t *testing.T) {
				t.Parallel()
				keys := fmt.Sprintf("algo: %s, unit: day, rpu: 20, on_error: %s", algo, onError)
				r := redistest.Start(t)
				l := limiter(t, fmt.Sprintf(bound, maxKeys, r.URL(), keys))
				testproc.Eventually(t, connected(l))
				known := device("/flood", "known")
				used := count(t, l, 5, known)
				invent(t, l, invented)
				if n := countersIn(t, r); n > maxKeys+rules || n < maxKeys/2 {
					t.Errorf("%d counters in Redis, want at most %d and an overflow counter a rule", n, maxKeys)
				}
				if got := count(t, l, 30, known); algo != "LB" && used+got != 20 {
					t.Errorf("the known actor was allowed %d and %d, want 20 in all", used, got)
				}
				if !ask(t, l, device("/other", "new")).Allowed {
					t.Error("a new actor of the other rule has no room")
				}
			})
		}
	}
}

// Slots and refunds reach the counter in Redis that was charged, also when the actor has left the
// overflow counter meanwhile, or is in it for the first time.
func TestRefundsReachTheChargedCounter(t *testing.T) {
	t.Parallel()
	for _, onError := range []string{"share", "local", "closed", "open"} {
		t.Run(onError, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			const limits = `
max_keys: 2
redis: {url: %q, timeout: 10s}
limits:
- {url: /slots, rules: [{actor: device, algo: C, rpu: 2, scope: global, on_error: %[2]s}]}
- {url: /failures, rules: [{actor: device, algo: W, unit: day, rpu: 2, scope: global, charge: [401], on_error: %[2]s}]}
`
			l := limiter(t, fmt.Sprintf(limits, r.URL(), onError))
			testproc.Eventually(t, connected(l))
			take := func(path, id string, allowed bool) diana.Decision {
				t.Helper()
				d, err := l.Take(context.Background(), device(path, id))
				if err != nil || d.Allowed != allowed {
					t.Fatalf("%s of %s: allowed %v, %v; want %v", path, id, d.Allowed, err, allowed)
				}
				return d
			}
			release := func(all ...diana.Decision) {
				for _, d := range all {
					d.Done()
				}
			}
			// Redis learns of a release with the next call.
			free := func(path, id string) {
				t.Helper()
				testproc.Eventually(t, func() bool { return ask(t, l, device(path, id)).Allowed })
			}

			a, b := take("/slots", "a", true), take("/slots", "b", true)
			c, d := take("/slots", "c", true), take("/slots", "d", true) // share 2
			release(take("/slots", "e", false), a)                       // a's record is free
			e := take("/slots", "e", true)                               // by itself
			release(c)                                                   // of the overflow counter
			free("/slots", "f")                                          // which shares that
			f := take("/slots", "f", true)
			release(take("/slots", "g", false))
			release(take("/slots", "e", true)) // e has a second slot of its own
			release(b, d, e, f)
			testproc.Eventually(t, func() bool { return countersIn(t, r) == 0 })

			a, b = take("/failures", "a", true), take("/failures", "b", true)
			c, d = take("/failures", "c", true), take("/failures", "d", true) // share 2
			release(take("/failures", "e", false))
			c.SetStatus(200)
			free("/failures", "e")
			release(take("/failures", "f", false)) // e stays charged
			a.SetStatus(200)
			release(a, b, c, d)
			if got := count(t, l, 5, device("/failures", "b")); got != 1 {
				t.Errorf("b is allowed %d more, want 1", got)
			}
		})
	}
}

// A flood of invented actors does not stop global counting in a Redis that evicts nothing, if it has
// memory for max_keys actors.
func TestFloodedRedisKeepsCounting(t *testing.T) {
	t.Parallel()
	if race.Enabled || testing.Short() {
		t.Skip("50,000 requests")
	}
	r := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	l := limiter(t, fmt.Sprintf(bound, 5000, r.URL(), "algo: TB, unit: day, rpu: 20"))
	testproc.Eventually(t, connected(l))
	invent(t, l, 50_000)
	s := l.Status()
	if s.Degraded || s.Fallback > 0 || len(l.RedisErrors()) > 0 {
		t.Errorf("degraded %v, %d requests without Redis, errors %v; want all counted in Redis", s.Degraded, s.Fallback, l.RedisErrors())
	}
	if !ask(t, l, device("/other", "new")).Allowed {
		t.Error("a new actor of another rule is refused")
	}
}

// A gateway keeps its share if the settings of Redis change while Redis is down. It must not take the
// whole limit because it has seen no other gateway yet.
func TestShareAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\n%s", r.URL(), timeout, fiveHundred)
	}
	var j journal
	a := open(t, j.options(), f.write("diana.yaml", text("500ms")))
	_ = limiter(t, text("500ms"))
	testproc.Eventually(t, func() bool { return a.Status().Gateways == 2 && !a.Status().Degraded })
	r.Kill()
	testproc.Eventually(t, func() bool { return a.Status().Degraded })
	f.write("diana.yaml", text("400ms"))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := count(t, a, 600, diana.Request{Path: "/"}); got != 250 {
		t.Errorf("one of two gateways let %d pass, want 250", got)
	}
}

// Slots stay held when the settings of Redis change.
func TestSlotsAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(timeout string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: %s}\nlimits: [{url: /, rules: [{rpu: 1, algo: C, scope: global}]}]", r.URL(), timeout)
	}
	l := open(t, quiet, f.write("diana.yaml", text("5s")))
	testproc.Eventually(t, connected(l))
	inside, err := l.Take(t.Context(), diana.Request{})
	if err != nil || !inside.Allowed || inside.Degraded {
		t.Fatalf("%v, %+v", err, inside)
	}
	f.write("diana.yaml", text("6s"))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, connected(l))
	left := func() (ms int64) { // of the lease
		keys, _ := r.Must("KEYS", "*").([]any)
		for _, key := range keys {
			if key, _ := key.(string); !strings.Contains(key, "calls:") && r.Must("TYPE", key) == "string" {
				ms, _ = r.Must("PTTL", key).(int64)
			}
		}
		return ms
	}
	before := left()
	testproc.Eventually(t, func() bool { last := before; before = left(); return before > last })
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("two requests hold the only slot")
	}
	testproc.Eventually(t, func() bool { return l.Status().Gateways == 1 })
	inside.Done()
	testproc.Eventually(t, func() bool { return ask(t, l, diana.Request{}).Allowed })
}

// A reload to a Redis that cannot be reached is logged with the reason, and one back to a
// Redis that answers is logged too. Requests see no failed call, so the probes count errors.
func TestLogOfRedisAfterReload(t *testing.T) {
	t.Parallel()
	r, f := redistest.Start(t), newFolder(t)
	text := func(url string) string { return fmt.Sprintf("redis: {url: %q}\n%s", url, fiveHundred) }
	var j journal
	l := open(t, j.options(), f.write("diana.yaml", text(r.URL())))
	lines := func(message string) int { return strings.Count(j.String(), message) }
	for round := 1; round <= 2; round++ {
		testproc.Eventually(t, connected(l))
		testproc.Eventually(t, func() bool { return lines("global limits are counted in Redis") == round })
		f.write("diana.yaml", text("redis://127.0.0.1:1"))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		testproc.Eventually(t, func() bool { return lines(`msg="Redis is out of reach`) == round })
		f.write("diana.yaml", text(r.URL()))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(j.String(), "connection refused") {
		t.Errorf("no reason in the log:\n%s", j.String())
	}
	if l.RedisErrors()["connection"] == 0 {
		t.Errorf("errors by kind: %v, want some of the kind connection", l.RedisErrors())
	}
}

// A gateway that refuses because Redis is down has a short Retry-After, and not a whole unit.
func TestRetryAfterOfClosed(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 5, scope: global, on_error: closed}]}")
	if d := ask(t, l, diana.Request{}); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("allowed %v, retry after %v; want a refusal for a second", d.Allowed, d.RetryAfter)
	}
}

// edge is a store of a program: a memstore that can fail, and counts its calls.
type edge struct {
	*memstore.Store
	down  atomic.Bool
	takes atomic.Int64
}

func newEdge() *edge { return &edge{Store: memstore.New(memstore.Options{})} }

var errEdge = errors.New("the edge is down")

func (e *edge) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	e.takes.Add(1)
	if e.down.Load() {
		return false, errEdge
	}
	return e.Store.Take(ctx, now, charges)
}

func (e *edge) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if e.down.Load() {
		return errEdge
	}
	return e.Store.Peek(ctx, now, charges)
}

// withStores returns a Limiter with stores of the program.
func withStores(t *testing.T, stores map[string]limit.Store, yaml string) *diana.Limiter {
	t.Helper()
	v := config.DefaultVocabulary()
	for scope := range stores {
		v.Scopes = append(v.Scopes, scope)
	}
	c, err := v.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: quiet.Logger, Stores: stores}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Two limiters that share a store of the program keep one limit together, exactly.
func TestStoreOfAScope(t *testing.T) {
	t.Parallel()
	e := newEdge()
	const yaml = `[{url: /, rules: [{name: shared, scope: edge, rpu: 100, unit: day, algo: W}, {name: own, rpu: 1000, unit: day, algo: W}]}]`
	limiters := []*diana.Limiter{
		withStores(t, map[string]limit.Store{"edge": e}, yaml), withStores(t, map[string]limit.Store{"edge": e}, yaml),
	}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				d, err := limiters[i%2].Take(t.Context(), diana.Request{Path: "/"})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
				d.Done()
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 100 {
		t.Errorf("%d requests are allowed, want 100", allowed.Load())
	}
	var own int64
	for _, l := range limiters {
		own += l.Status().Rules[1].Allowed
	}
	if own != 100 {
		t.Errorf("the local rules have counted %d requests, want 100: a refused request must be refunded", own)
	}
}

// A request under several stores is charged in all of them or in none, whichever refuses.
func TestStoresAllOrNone(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, tight := range []string{"local", "east", "west", "global"} {
		limits := ""
		for _, scope := range []string{"local", "east", "west", "global"} {
			n := "10"
			if scope == tight {
				n = "3"
			}
			limits += "{name: " + scope + ", scope: " + scope + ", rpu: " + n + ", unit: day, algo: W}, "
		}
		l := withStores(t, map[string]limit.Store{"east": newEdge(), "west": newEdge()},
			"redis: {url: '"+r.URL()+"', prefix: "+tight+", timeout: 10s}\nlimits: [{url: /, rules: ["+strings.TrimSuffix(limits, ", ")+"]}]")
		testproc.Eventually(t, connected(l))
		if got := count(t, l, 10, diana.Request{Path: "/"}); got != 3 {
			t.Errorf("%s: %d requests are allowed, want 3", tight, got)
		}
		d, err := l.Peek(t.Context(), diana.Request{Path: "/"})
		if err != nil || d.Allowed || len(d.Verdicts) != 4 {
			t.Fatalf("%s: %+v, %v", tight, d, err)
		}
		for _, v := range d.Verdicts {
			want := int64(7)
			if v.Rule.Name == tight {
				want = 0
			}
			if v.Remaining != want {
				t.Errorf("%s: %d requests remain under %s, want %d", tight, v.Remaining, v.Rule.Name, want)
			}
		}
	}
}

// While a store fails, on_error decides, and the store is debited afterwards.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		onError string
		allowed int // of 10 while the store is down
		left    int // of 10 when it is back
	}{
		{"local", 4, 0}, {"share", 4, 0}, {"closed", 0, 4}, {"open", 10, 4},
	} {
		e := newEdge()
		l := withStores(t, map[string]limit.Store{"edge": e},
			"[{url: /, rules: [{name: r, scope: edge, rpu: 5, unit: day, algo: W, on_error: "+tc.onError+"}]}]")
		r := diana.Request{Path: "/"}
		if d := ask(t, l, r); !d.Allowed || d.Degraded {
			t.Errorf("%s: %+v", tc.onError, d)
		}
		e.down.Store(true)
		allowed := 0
		for range 10 {
			d, err := l.Take(t.Context(), r)
			if err != nil || !d.Degraded {
				t.Fatalf("%s: %+v, %v", tc.onError, d, err)
			}
			if d.Allowed {
				allowed++
			}
			d.Done()
		}
		e.down.Store(false)
		if left := count(t, l, 10, r); allowed != tc.allowed || left != tc.left {
			t.Errorf("%s: %d requests are allowed while the store is down and %d afterwards, want %d and %d",
				tc.onError, allowed, left, tc.allowed, tc.left)
		}
	}
}

// A store can replace the local one, and Redis.
func TestStoresReplaceScopes(t *testing.T) {
	t.Parallel()
	local, global := newEdge(), newEdge()
	l := withStores(t, map[string]limit.Store{"local": local, "global": global}, `
- {url: /a, rules: [{rpu: 2, unit: day, algo: W}]}
- {url: /b, rules: [{rpu: 3, unit: day, algo: W, scope: global}]}
`)
	if got := count(t, l, 5, diana.Request{Path: "/a"}); got != 2 || local.takes.Load() != 5 {
		t.Errorf("%d are allowed and the store was asked %d times, want 2 and 5", got, local.takes.Load())
	}
	if got := count(t, l, 5, diana.Request{Path: "/b"}); got != 3 || global.takes.Load() != 5 {
		t.Errorf("%d are allowed and the store was asked %d times, want 3 and 5", got, global.takes.Load())
	}
	if s := l.Status(); s.Degraded || s.Fallback != 0 {
		t.Errorf("degraded %v, %d requests without a store", s.Degraded, s.Fallback)
	}
}

// Reset reaches the store of the scope and the local memory of it.
func TestResetInAStore(t *testing.T) {
	t.Parallel()
	l := withStores(t, map[string]limit.Store{"edge": newEdge()},
		"[{url: /, rules: [{name: r, actor: account, scope: edge, rpu: 2, unit: day, algo: W}]}]")
	ann := diana.Request{Path: "/", Actors: map[string]string{"account": "ann"}}
	for range 2 {
		if got := count(t, l, 5, ann); got != 2 {
			t.Errorf("%d are allowed, want 2", got)
		}
		if err := l.Reset(t.Context(), "r", "ann"); err != nil {
			t.Error(err)
		}
	}
}

// A scope without a store is an error that names the rule and the scope.
func TestScopeWithoutStore(t *testing.T) {
	t.Parallel()
	c := &config.Config{Limits: []rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{{Name: "r", Scope: "edge", Limit: limit.Limit{N: 1, Unit: 1e9}}}}}}
	_, err := quiet.New(c)
	if err == nil || !strings.Contains(err.Error(), `rule "r": scope "edge" has no store, expected local, global or a scope of Options.Stores`) {
		t.Error(err)
	}
	o := quiet
	o.Stores = map[string]limit.Store{"edge": nil}
	if _, err := o.New(c); err == nil || !strings.Contains(err.Error(), `no store for the scope "edge"`) {
		t.Error(err)
	}
}

// Slots that requests took while their store was down are released, whatever on_error says.
func TestSlotsOfAStoreThatFails(t *testing.T) {
	t.Parallel()
	for _, onError := range []string{"open", "local", "share", "closed"} {
		e := newEdge()
		l := withStores(t, map[string]limit.Store{"edge": e},
			"[{url: /, rules: [{name: slots, scope: edge, rpu: 3, algo: C, on_error: "+onError+"}]}]")
		r := diana.Request{Path: "/"}
		e.down.Store(true)
		for range 10 {
			d, err := l.Take(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done()
		}
		e.down.Store(false)
		d, err := l.Peek(t.Context(), r)
		if err != nil || !d.Allowed || d.Verdicts[0].Remaining != 3 {
			t.Errorf("%s: %+v, %v, want 3 free slots", onError, d, err)
		}
	}
}

// The error of a request whose context has ended is that of the context, whatever the store says.
func TestStoreFailsAfterContext(t *testing.T) {
	t.Parallel()
	e := newEdge()
	l := withStores(t, map[string]limit.Store{"edge": e}, "[{url: /, rules: [{scope: edge, rpu: 3}]}]")
	e.down.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := l.Take(ctx, diana.Request{Path: "/"}); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("Take: %+v, %v", d, err)
	}
	if d, err := l.Peek(ctx, diana.Request{Path: "/"}); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("Peek: %+v, %v", d, err)
	}
}
