// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/etcdtest"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// operated is a gateway whose remote configuration operators change over HTTP.
type operated struct{ *served }

// operate starts a gateway that follows a remote configuration and accepts changes.
func operate(t *testing.T, remote string) *operated {
	t.Helper()
	token := tokenIn(t, "s3cret-of-the-operators\n")
	yaml := fmt.Sprintf("remote: {url: %q}\nlimits: [{url: /, rules: [{name: local, rpu: 1000000}]}]", remote)
	return &operated{serve(t, yaml, newSite(t, nil).upstream.URL, "--admin-token", token)}
}

// call sends a request to the administrators' listener, with the token. It returns the status and the JSON.
// Any goroutine may call it.
func (o *operated) call(t *testing.T, method, path string, body any) (int, map[string]any) {
	t.Helper()
	text, _ := json.Marshal(body)
	r, err := http.NewRequestWithContext(t.Context(), method, o.admin+path, strings.NewReader(string(text)))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	r.Header.Set("Authorization", "Bearer s3cret-of-the-operators")
	r.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer reply.Body.Close()
	said, err := io.ReadAll(reply.Body)
	var answer map[string]any
	if err != nil || json.Unmarshal(said, &answer) != nil {
		t.Errorf("%s %s: %s: %q, %v", method, path, reply.Status, said, err)
	}
	return reply.StatusCode, answer
}

// awaits waits until the gateway evaluates by a version.
func (o *operated) awaits(t *testing.T, version any) {
	t.Helper()
	if !testproc.Becomes(func() bool { return o.status(t).Config.Version == version }) {
		t.Fatalf("found %+v, want version %v", o.status(t).Config, version)
	}
}

func document(name string) string {
	return fmt.Sprintf("# %s\n{url: /, rules: [{name: %s, rpu: 7}]}\n", name, name)
}

// Two operators begin with the same version. One push is in force in both gateways, and the other operator learns
// that it is not.
func TestOperatorsPushAtOnce(t *testing.T) {
	t.Parallel()
	remote := "etcd://" + etcdtest.Start(t).Addr() + "/diana/limits"
	gateways := []*operated{operate(t, remote), operate(t, remote)}
	base := ""
	for round := range 5 {
		var running sync.WaitGroup
		var statuses [2]int
		var answers [2]map[string]any
		for i, g := range gateways {
			running.Go(func() {
				statuses[i], answers[i] = g.call(t, "POST", "/api/v1/push", map[string]any{
					"text": document(fmt.Sprintf("r%d-of-%d", round, i)), "expect": base, "by": fmt.Sprint("operator ", i),
				})
			})
		}
		running.Wait()
		won := 0
		if statuses[1] == http.StatusOK {
			won = 1
		}
		if statuses[won] != http.StatusOK || statuses[1-won] != http.StatusConflict {
			t.Fatalf("round %d: %v %v", round, statuses, answers)
		}
		base = answers[won]["version"].(string)
		if found := answers[1-won]["found"]; found != base {
			t.Errorf("the other operator learns of %v, want %s", found, base)
		}
		for _, g := range gateways {
			g.awaits(t, base)
		}
	}
}

// Versions survive restarts of the gateway and of the configuration centre.
func TestRollbackAfterRestarts(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, restart func()){
		"etcd": func(t *testing.T) (string, func()) {
			s := etcdtest.Start(t)
			return "etcd://" + s.Addr() + "/diana/limits", func() { s.Kill(); s.Restart() }
		},
		"Redis": func(t *testing.T) (string, func()) {
			s := redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}.Start(t)
			return s.URL() + "/0/diana/limits", func() { s.Kill(); s.Restart() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, restart := start(t)
			g := operate(t, url)
			version := ""
			var pushed []string
			for _, name := range []string{"good", "bad"} {
				status, answer := g.call(t, "POST", "/api/v1/push", map[string]any{"text": document(name), "expect": version, "comment": name})
				if status != http.StatusOK {
					t.Fatal(status, answer)
				}
				version = answer["version"].(string)
				pushed = append(pushed, version)
			}
			g.awaits(t, pushed[1])

			restart()
			g.stop(t)
			g = operate(t, url)
			g.awaits(t, pushed[1])
			_, list := g.call(t, "GET", "/api/v1/versions", nil)
			if n := len(list["versions"].([]any)); n != 2 {
				t.Fatalf("found %v", list)
			}
			status, answer := g.call(t, "POST", "/api/v1/rollback", map[string]any{"number": 1, "expect": version, "by": "ann"})
			if status != http.StatusOK || answer["version"] != pushed[0] || answer["number"] != 3.0 {
				t.Fatal(status, answer)
			}
			g.awaits(t, pushed[0])
			if _, shown := g.call(t, "GET", "/api/v1/config", nil); shown["text"] != document("good") || shown["writable"] != true {
				t.Errorf("found %v", shown)
			}
			if _, one := g.call(t, "GET", "/api/v1/versions/2", nil); one["text"] != document("bad") || one["active"] != false || one["gzip"] != nil {
				t.Errorf("found %v", one)
			}

			// The commands see the same versions.
			if status, out, errs := runDiana(t, "rollback", "--config", g.file, "--list"); status != command.StatusGood ||
				!regexp.MustCompile(`^\* +3  `+pushed[0]+`  .* ann  rollback to version 1\n +2  `+pushed[1]).MatchString(out) {
				t.Errorf("rollback --list ended with %d and printed\n%s%s", status, out, errs)
			}
			for wrong, want := range map[string]string{"0": `there is no version "0"`, "77": `there is no version "77"`, "--list 1": "expected no number"} {
				if status, out, errs := runDiana(t, append([]string{"rollback", "--config", g.file}, strings.Fields(wrong)...)...); status == command.StatusGood || !strings.Contains(errs, want) {
					t.Errorf("rollback %s ended with %d and printed\n%s%s", wrong, status, out, errs)
				}
			}
			if status, out, errs := runDiana(t, "rollback", "--yes", "--config", g.file); status != command.StatusGood || !strings.Contains(out, "version "+pushed[1]) {
				t.Errorf("rollback ended with %d and printed\n%s%s", status, out, errs)
			}
			g.awaits(t, pushed[1])
		})
	}
}

// A push that is not valid, not expected or not complete changes nothing. Each has its line in the audit.
func TestPushRefusals(t *testing.T) {
	t.Parallel()
	g := operate(t, redistest.Start(t).URL()+"/0/diana/limits")
	good := document("good")
	for _, c := range []struct {
		path   string
		body   any
		status int
		detail string
	}{
		{"push", map[string]any{}, 400, "expect"},
		{"push", map[string]any{"expect": ""}, 400, "text"},
		{"push", map[string]any{"text": good}, 400, "expect"},
		{"push", map[string]any{"text": good, "expect": "", "more": 1}, 400, "more"},
		{"push", map[string]any{"text": 1, "expect": ""}, 400, "text"},
		{"push", map[string]any{"text": good, "expect": "", "comment": strings.Repeat("x", 1001)}, 400, "comment"},
		{"push", []int{1}, 400, ""},
		{"push", map[string]any{"text": "{url: /, rules: [{rpu: many}]}", "expect": ""}, 422, "rpu"},
		{"push", map[string]any{"text": "redis: {url: 'redis://h'}\nlimits: []", "expect": ""}, 422, "limits alone"},
		{"push", map[string]any{"text": good, "expect": "0123456789ab"}, 409, "deleted"},
		{"push", map[string]any{"text": strings.Repeat("#", 3<<20), "expect": ""}, 413, ""},
		{"rollback", map[string]any{}, 400, "expect"},
		{"rollback", map[string]any{"number": 1, "expect": ""}, 404, "no version"},
	} {
		status, answer := g.call(t, "POST", "/api/v1/"+c.path, c.body)
		if detail, _ := answer["detail"].(string); status != c.status || !strings.Contains(detail, c.detail) {
			t.Errorf("%s %.80v: found %d %v, want %d with %q", c.path, c.body, status, answer, c.status, c.detail)
		}
	}
	if _, list := g.call(t, "GET", "/api/v1/versions", nil); len(list["versions"].([]any)) != 0 {
		t.Errorf("found %v", list)
	}
	status, answer := g.call(t, "POST", "/api/v1/push", map[string]any{"text": good, "expect": "", "by": "a\nb\x1b"})
	if status != http.StatusOK {
		t.Fatal(status, answer)
	}
	_, audit := g.call(t, "GET", "/api/v1/audit", nil)
	lines := audit["lines"].([]any)
	newest := lines[0].(map[string]any)
	if len(lines) != 4 || newest["by"] != "a\nb\x1b" || newest["from"] != "127.0.0.1" || newest["action"] != "push" {
		t.Errorf("found %v", audit)
	}
	if !strings.Contains(g.log.String(), `msg=audit action=push`) {
		t.Error("the log has no line of the audit")
	}
	r, err := http.Post(g.admin+"/api/v1/push", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if _ = r.Body.Close(); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a push without the token is answered with %s", r.Status)
	}
}

// Everybody who reaches the listener may read, so a file with a secret in it is not shown.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{
		"redis: {url: 'redis://127.0.0.1:1', password: hidden-one}\n",
		"redis: {url: 'redis://:hidden-one@127.0.0.1:1'}\n",
		"redis: {sentinel: {master: m, addresses: ['127.0.0.1:1'], password: hidden-one}}\n",
	} {
		g := &operated{serve(t, settings+"limits: [{url: /, rules: [{name: file, rpu: 7}]}]\n", newSite(t, nil).upstream.URL)}
		_, shown := g.call(t, "GET", "/api/v1/config", nil)
		if text := fmt.Sprint(shown); strings.Contains(text, "hidden-one") || shown["text"] != "" || !strings.Contains(text, "has a secret") {
			t.Errorf("%s: found %v", settings, shown)
		}
		if err := os.WriteFile(g.file, []byte(settings+"limits: ["), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, shown := g.call(t, "GET", "/api/v1/config", nil); shown["text"] != "" || !strings.Contains(fmt.Sprint(shown), "not valid") {
			t.Errorf("%s, not valid: found %v", settings, shown)
		}
	}
}

// A gateway without a remote configuration shows its file, and changes nothing.
func TestPushWithoutRemote(t *testing.T) {
	t.Parallel()
	token := tokenIn(t, "s3cret-of-the-operators\n")
	g := &operated{serve(t, document("file"), newSite(t, nil).upstream.URL, "--admin-token", token)}
	_, shown := g.call(t, "GET", "/api/v1/config", nil)
	if shown["text"] != document("file") || shown["writable"] != false || shown["version"] != g.status(t).Config.Version {
		t.Errorf("found %v", shown)
	}
	for path, body := range map[string]any{
		"push":     map[string]any{"text": document("other"), "expect": shown["version"]},
		"rollback": map[string]any{"number": 1, "expect": shown["version"]},
	} {
		if status, answer := g.call(t, "POST", "/api/v1/"+path, body); status != http.StatusConflict {
			t.Errorf("%s: found %d %v", path, status, answer)
		}
	}
	if status, schema := g.call(t, "GET", "/api/v1/schema.json", nil); status != http.StatusOK || schema["$schema"] == nil {
		t.Errorf("found %d", status)
	}
}

// The API resets an actor as POST /reset does.
func TestResetByAPI(t *testing.T) {
	t.Parallel()
	token := tokenIn(t, "s3cret-of-the-operators\n")
	s := newSite(t, nil)
	g := &operated{serve(t, `{url: /, rules: [{name: few, actor: "query:who", algo: W, unit: day, align: first, rpu: 3}]}`, s.upstream.URL, "--admin-token", token)}
	if n := useUp(t, s, g.url+"/?who=ann"); n != 3 {
		t.Errorf("%d requests are allowed, want 3", n)
	}
	if status, answer := g.call(t, "POST", "/api/v1/reset", map[string]any{"rule": "few", "actor": "ann"}); status != http.StatusOK {
		t.Errorf("found %d %v", status, answer)
	}
	if n := s.allowed(t, g.url+"/?who=ann", 5); n != 3 {
		t.Errorf("%d requests are allowed after the reset, want 3", n)
	}
}

// tokenIn returns the value of --admin-token for a file with this token.
func tokenIn(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + file
}
