// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
	yaml := fmt.Sprintf("redis: {url: %q, timeout: 1s}\nlimits:\n", r.URL())
	algorithms := []string{"W", "TB", "SW", "SL"}
	for _, a := range algorithms {
		yaml += fmt.Sprintf("- {url: /%s, rules: [{name: %[1]s, algo: %[1]s, unit: 72h, rpu: %d, scope: global}]}\n", a, n)
	}
	gatewayOf := func(version string) string {
		defer func(before string) { *program = before }(*program)
		*program = version
		return "http://" + gateway(t, "http://"+upstream.Addr().String(), yaml)
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

// Gateways of the second edition and of this one take over from each other. No request fails, but counters begin again.
func TestLastEditionHandsOver(t *testing.T) {
	old, current := buildLastEdition(t), *program
	defer func() { *program = current }()
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
		*program = version
		next := gateway(t, "http://"+upstream.Addr().String(), fmt.Sprintf("url: /\nrules: [{unit: 72h, rpu: %d}]", n), "--handover", socket)
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
