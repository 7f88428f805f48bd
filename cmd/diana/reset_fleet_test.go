// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// runDiana runs a command in a process of its own.
func runDiana(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command("diana", args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// useUp sends requests until the gateway refuses some in a row, and returns how many it allowed.
func useUp(t *testing.T, s *site, url string) (ok int) {
	t.Helper()
	for range 20 {
		n := s.allowed(t, url, 5)
		if ok += n; n == 0 {
			return ok
		}
	}
	t.Fatalf("%s: %d requests are allowed, and more", url, ok)
	return ok
}

// freed waits until a gateway allows a request.
func freed(t *testing.T, s *site, url string) {
	t.Helper()
	if !testproc.Becomes(func() bool { return s.allowed(t, url, 1) == 1 }) {
		t.Fatalf("%s is still refused", url)
	}
}

// An actor that has used up a global rule is free on every gateway after diana reset, although both
// gateways remember that Redis has refused it. Another actor is not.
func TestResetFreesFleet(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	yaml := fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /w, rules: [{name: w, actor: "query:who", algo: W, unit: day, align: first, rpu: 3, scope: global}]}
- {url: /tb, rules: [{name: tb, actor: "query:who", algo: TB, unit: day, rpu: 3, scope: global}]}
- {url: /sl, rules: [{name: sl, actor: "query:who", algo: SL, unit: day, rpu: 3, scope: global}]}
- {url: /sw, rules: [{name: sw, actor: "query:who", algo: SW, unit: day, rpu: 3, scope: global}]}
- {url: /lb, rules: [{name: lb, actor: "query:who", algo: LB, unit: day, rpu: 3, scope: global}]}
`, redistest.Start(t).URL(), patient)
	a, b := serve(t, yaml, s.upstream.URL), serve(t, yaml, s.upstream.URL)
	for _, rule := range []string{"w", "tb", "sl", "sw", "lb"} {
		t.Run(rule, func(t *testing.T) {
			ann, bob := "/"+rule+"?who=ann", "/"+rule+"?who=bob"
			n := useUp(t, s, a.url+ann)
			for _, url := range []string{b.url + ann, b.url + bob} {
				useUp(t, s, url)
			}
			useUp(t, s, a.url+bob)
			peek := func(want *regexp.Regexp) {
				t.Helper()
				var status int
				var out, errs string
				testproc.Eventually(t, func() bool { // Redis may be late
					status, out, errs = runDiana(t, "explain", "--peek", "--config", a.file, ann)
					return !strings.Contains(errs, "Redis is out of reach")
				})
				if status != command.StatusGood || errs != "" || !want.MatchString(out) {
					t.Errorf("explain --peek ended with %d and printed\n%s%s", status, out, errs)
				}
			}
			peek(regexp.MustCompile(`(?m) enforce +0 +[1-9]\S+s +query:who=3:ann;$`))

			status, out, errs := runDiana(t, "reset", "--config", a.file, "--rule", rule, "--actor", "ann")
			if want := "Redis: query:who=3:ann; reset\n"; status != command.StatusGood || out != want || errs != "" {
				t.Fatalf("reset ended with %d and printed\n%s%s", status, out, errs)
			}
			peek(regexp.MustCompile(fmt.Sprintf(`(?m) enforce +%d +\S+ +query:who=3:ann;$`, n)))
			freed(t, s, b.url+ann)
			again := 1
			if n > 1 {
				freed(t, s, a.url+ann)
				again++
			}
			if again += useUp(t, s, a.url+ann) + useUp(t, s, b.url+ann); again != n {
				t.Errorf("%d requests are allowed after the reset, want %d", again, n)
			}
			if ok := s.allowed(t, a.url+bob, 1) + s.allowed(t, b.url+bob, 1); ok != 0 {
				t.Error("the other actor is free, too")
			}
		})
	}
}

// A gateway resets an actor under a local rule if the command has the token. The other gateway keeps
// its count.
func TestResetLocalRule(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	const yaml = `{url: /, rules: [{name: few, actor: "query:who", algo: W, unit: day, align: first, rpu: 3}]}`
	token, wrong := tokenIn(t, "s3cret-of-the-operators\n"), tokenIn(t, "wr0ng-of-the-operators\n")
	a := serve(t, yaml, s.upstream.URL, "--admin-token", token)
	b := serve(t, yaml, s.upstream.URL, "--admin-token", token)
	for _, g := range []*served{a, b} {
		if n := useUp(t, s, g.url+"/?who=ann"); n != 3 {
			t.Errorf("%d requests are allowed, want 3", n)
		}
	}
	reset := func(token string, gateways ...*served) (status int, stdout, stderr string) {
		args := []string{"reset", "--config", a.file, "--rule", "few", "--actor", "ann", "--admin-token", token}
		for _, g := range gateways {
			args = append(args, "--admin", g.admin)
		}
		return runDiana(t, args...)
	}
	if status, out, errs := reset(wrong, a, b); status != command.StatusBad || out != "" || strings.Count(errs, "401 Unauthorized") != 2 {
		t.Errorf("with a wrong token reset ends with %d and prints\n%s%s", status, out, errs)
	}
	for _, path := range []string{"/reset", "/api/v1/reset"} {
		answer, err := s.client.Post(a.admin+path, "application/json", strings.NewReader(`{"rule": "few", "actor": "ann"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("a request without a token is answered with %s", answer.Status)
		}
	}
	if ok := s.allowed(t, a.url+"/?who=ann", 1); ok != 0 {
		t.Error("the actor is free without the token")
	}
	want := a.admin + ": query:who=3:ann; reset\n"
	if status, out, errs := reset(token, a); status != command.StatusGood || out != want || errs != "" {
		t.Errorf("reset ended with %d and printed\n%s%s", status, out, errs)
	}
	if ok, other := s.allowed(t, a.url+"/?who=ann", 5), s.allowed(t, b.url+"/?who=ann", 5); ok != 3 || other != 0 {
		t.Errorf("the gateway allows %d requests and the other one %d, want 3 and 0", ok, other)
	}
}

// Without Redis diana reset fails, whether it asks Redis or a gateway. The gateway resets what it
// counts in place of Redis.
func TestResetWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	token := tokenIn(t, "s3cret-of-the-operators\n")
	s := newSite(t, nil)
	g := serve(t, fmt.Sprintf(`
redis: {url: %q, timeout: 1s} # diana reset has it too, and a busy machine is slow
limits:
- {url: /, rules: [{name: few, actor: "query:who", algo: W, unit: day, align: first, rpu: 3, scope: global, on_error: share}]}
`, r.URL()), s.upstream.URL, "--admin-token", token)
	r.Kill()
	f := &fleet{gateways: []*served{g}}
	s.allowed(t, g.url+"/?who=bob", 1) // so that the gateway notices it
	f.awaitDegraded(t, 0, true)
	const ann = "/?who=ann"
	if n := useUp(t, s, g.url+ann); n != 3 {
		t.Errorf("%d requests are allowed, want 3", n)
	}
	reset := func(flags ...string) (status int, stdout, stderr string) {
		return runDiana(t, append([]string{"reset", "--config", g.file, "--rule", "few", "--actor", "ann"}, flags...)...)
	}
	byGateway := []string{"--admin", g.admin, "--admin-token", token}
	const inRedis = "diana: Redis: query:who=3:ann; not reset: "
	if status, out, errs := reset(); status != command.StatusBad || out != "" || !strings.HasPrefix(errs, inRedis) {
		t.Errorf("reset ended with %d and printed\n%s%s", status, out, errs)
	}
	if ok := s.allowed(t, g.url+ann, 1); ok != 0 {
		t.Error("the gateway has reset the actor")
	}
	status, out, errs := reset(byGateway...)
	if status != command.StatusBad || !strings.HasPrefix(errs, inRedis) || !strings.Contains(errs, "503 Service Unavailable") {
		t.Errorf("reset ended with %d and printed\n%s%s", status, out, errs)
	}
	if ok := s.allowed(t, g.url+ann, 5); ok != 3 {
		t.Errorf("%d requests are allowed after the reset, want 3", ok)
	}

	r.Restart()
	f.awaitDegraded(t, 0, false)
	if status, out, errs := reset(byGateway...); status != command.StatusGood || strings.Count(out, " reset\n") != 2 || errs != "" {
		t.Errorf("with Redis again, reset ended with %d and printed\n%s%s", status, out, errs)
	}
	freed(t, s, g.url+ann)
}
