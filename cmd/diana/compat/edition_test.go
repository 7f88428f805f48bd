// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// lastEdition is the last commit of the second edition.
const lastEdition = "88d38e51ce119e32a725f3ec89446386b7c2d4e3"

// buildLastEdition builds the program of the second edition from the history of the repository.
func buildLastEdition(t *testing.T) (program string) {
	t.Helper()
	if !*allServers {
		t.Skip("builds another version; only with -all")
	}
	if exec.Command("git", "cat-file", "-e", lastEdition).Run() != nil {
		t.Skip("the repository has no history")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if out, err := exec.Command("git", "worktree", "add", "--detach", source, lastEdition).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("git", "worktree", "remove", "--force", source).Run() })
	program = filepath.Join(dir, "diana")
	build := exec.Command("go", "build", "-o", program, "./cmd/diana")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// Gateways of the second edition and of this one count together in one Redis, one after another, back again, and at the
// same time. A configuration of the second edition means the same.
func TestLastEditionCountsTogether(t *testing.T) {
	old, current := buildLastEdition(t), *program
	r := redistest.Start(t)
	upstream := startScripted(t)
	const n = 120
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 10s}\nlimits:\n", r.URL())
	algorithms := []string{"W", "TB", "SW", "SL"}
	for _, a := range algorithms {
		yaml += fmt.Sprintf("- {url: /%s, rules: [{name: %[1]s, actor: ip, algo: %[1]s, unit: 72h, rpu: %d, scope: global}]}\n", a, n)
	}
	gatewayOf := func(version string) string {
		_, host := startGateway(t, version, "http://"+upstream.Addr().String(), yaml)
		return "http://" + host
	}
	allowed := func(requests int, url string) (ok int64) {
		var count atomic.Int64
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				answer, err := http.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					count.Add(1)
				}
			})
		}
		all.Wait()
		return count.Load()
	}
	first, second, third := gatewayOf(old), gatewayOf(current), gatewayOf(old)
	for _, a := range algorithms {
		for _, host := range []string{first, second, third} {
			if ok := allowed(20, host+"/"+a); ok != 20 {
				t.Errorf("%s: %d of 20 allowed", a, ok)
			}
		}
		var total atomic.Int64
		var all sync.WaitGroup
		for _, host := range []string{first, second} {
			all.Go(func() { total.Add(allowed(n, host+"/"+a)) })
		}
		all.Wait()
		if got := total.Load(); got != n-60 {
			t.Errorf("%s: %d allowed at the same time, want %d", a, got, n-60)
		}
	}
	for _, version := range []string{old, current} {
		out, err := exec.Command(version, "check", "../starter.yaml", "../internal/command/demo.yaml").CombinedOutput()
		if err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// Gateways of one edition replace those of the other one by one, under load, and all count together. A reset by either
// program frees the actor in both. If Redis loses its memory while both serve, gateways of this edition put back what
// they remember. Charges by others before that are lost.
func TestLastEditionRolls(t *testing.T) {
	old := buildLastEdition(t)
	for name, versions := range map[string][2]string{"to this edition": {old, *program}, "back": {*program, old}} {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, loss %v", name, loses), func(t *testing.T) {
				t.Parallel()
				testRoll(t, versions[0], versions[1], loses)
			})
		}
	}
}

// rolling is gateways that are replaced one by one, and the load on them.
type rolling struct {
	t        *testing.T
	upstream string
	yaml     string
	places   [3]struct {
		mu   sync.RWMutex // held by requests
		host string
		stop func()
	}
	allowed map[string]*atomic.Int64 // by path
}

// rollingPaths are those of the load. A rule that charges only answers with 401 counts all below /S.
var rollingPaths = []string{"/W", "/TB", "/SW", "/SL", "/S/401", "/S/200"}

const lossOver = 30 // most that is allowed beyond a limit, see 16.5 of the contract

func testRoll(t *testing.T, from, to string, loses bool) {
	r := redistest.Start(t)
	upstream := startScripted(t)
	upstream.answers["/S/401"] = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
	const n = 600
	f := &rolling{t: t, upstream: "http://" + upstream.Addr().String(), allowed: map[string]*atomic.Int64{}}
	f.yaml = fmt.Sprintf("redis: {url: %q, timeout: 10s}\nlimits:\n", r.URL())
	for _, a := range []string{"W", "TB", "SW", "SL"} {
		f.yaml += fmt.Sprintf("- {url: /%s, rules: [{name: %[1]s, actor: ip, algo: %[1]s, unit: 72h, rpu: %d, scope: global}]}\n", a, n)
	}
	f.yaml += fmt.Sprintf("- {url: /S, rules: [{name: S, actor: ip, algo: W, unit: 72h, rpu: %d, scope: global, charge: [401]}]}\n", n)
	for _, path := range rollingPaths {
		f.allowed[path] = &atomic.Int64{}
	}
	for i := range f.places {
		f.deploy(i, from)
	}
	done := make(chan struct{})
	var load sync.WaitGroup
	for i := range f.places {
		load.Go(func() { f.load(i, done) })
	}
	defer load.Wait()
	defer close(done)

	used := func(least int64) bool {
		for _, path := range rollingPaths[:5] {
			if f.allowed[path].Load() < least {
				return false
			}
		}
		return true
	}
	for i := range f.places {
		for !used(int64(n*(i+1)/5)) && !t.Failed() {
			time.Sleep(10 * time.Millisecond)
		}
		if loses && i == 2 { // one is left of the others
			r.Must("FLUSHALL")
		}
		f.deploy(i, to)
		if loses && i == 0 {
			for _, path := range rollingPaths { // the new one has seen all
				f.ask(i, path)
			}
			r.Must("FLUSHALL")
		}
	}
	sums := f.exhaust()
	over := map[bool]int64{true: lossOver}[loses]
	for path, got := range sums {
		if got < n-over || got > n+over {
			t.Errorf("%s: %d are allowed, want %d", path, got, n)
		}
	}
	t.Log("allowed:", sums)
	config := filepath.Join(t.TempDir(), "diana.yaml")
	if err := os.WriteFile(config, []byte(f.yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	f.deploy(0, from) // so that both serve
	for i, version := range []string{from, to} {
		for _, rule := range []string{"W", "TB", "SW", "SL", "S"} {
			if out, err := exec.Command(version, "reset", "--config", config, "--rule", rule, "--actor", "127.0.0.1").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		for path, got := range f.exhaust() {
			if want := sums[path] + int64(n*(i+1)); got != want {
				t.Errorf("%s: %d are allowed after reset %d, want %d", path, got, i+1, want)
			}
		}
	}
}

// deploy replaces the gateway of a place.
func (f *rolling) deploy(place int, version string) {
	t, p := f.t, &f.places[place]
	next, host := startGateway(t, version, f.upstream, f.yaml)
	p.mu.Lock()
	stop := p.stop
	p.host, p.stop = host, func() {
		if err := next.Terminate(); err != nil {
			t.Error(err)
		}
		testproc.Eventually(t, next.HasEnded)
	}
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// load sends requests to a place, by a few clients.
func (f *rolling) load(place int, done chan struct{}) {
	var clients sync.WaitGroup
	for c := range 2 {
		clients.Go(func() {
			for i := c; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(3 * time.Millisecond):
				}
				if !f.ask(place, rollingPaths[i%len(rollingPaths)]) {
					return
				}
			}
		})
	}
	clients.Wait()
}

// ask sends a request to a place, and reports whether it had an answer.
func (f *rolling) ask(place int, path string) bool {
	p := &f.places[place]
	p.mu.RLock()
	answer, err := http.Get("http://" + p.host + path)
	p.mu.RUnlock()
	if err != nil {
		f.t.Error(err)
		return false
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		f.allowed[path].Add(1)
	}
	return true
}

// exhaust waits until all limits are used up, and returns how many requests were allowed by each.
func (f *rolling) exhaust() map[string]int64 {
	sums := map[string]int64{}
	for still := 0; still < 8; still++ { // a reset is known everywhere before
		time.Sleep(500 * time.Millisecond)
		for _, path := range rollingPaths[:5] {
			if got := f.allowed[path].Load(); got != sums[path] {
				sums[path], still = got, 0
			}
		}
	}
	return sums
}

// Gateways of the second edition and of this one take over from each other. No request fails, but counters begin again.
func TestLastEditionHandsOver(t *testing.T) {
	old, current := buildLastEdition(t), *program
	upstream := startScripted(t)
	socket := filepath.Join(t.TempDir(), "handover.sock")
	const n = 10
	var host string
	var allowed, refused atomic.Int64
	post := func() {
		answer, err := http.Post("http://"+host, "text/plain", struct{ io.Reader }{strings.NewReader("not repeated")})
		if err != nil {
			t.Error(err)
			return
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			allowed.Add(1)
		} else {
			refused.Add(1)
		}
	}
	var done atomic.Bool
	var load sync.WaitGroup
	for i, version := range []string{old, current, old} {
		_, next := startGateway(t, version, "http://"+upstream.Addr().String(), fmt.Sprintf("url: /\nrules: [{unit: 72h, rpu: %d}]", n), "--handover", socket)
		if i == 0 {
			host = next
			load.Go(func() {
				for !done.Load() {
					post()
				}
			})
		} else if next != host {
			t.Fatalf("the next gateway listens at %s instead of %s", next, host)
		}
		before := refused.Load()
		testproc.Eventually(t, func() bool { return allowed.Load() >= int64(n*(i+1)) && refused.Load() > before+20 })
	}
	done.Store(true)
	load.Wait()
	if got := allowed.Load(); got != 3*n {
		t.Errorf("%d allowed, want %d of each gateway", got, n)
	}
}
