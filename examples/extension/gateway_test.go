// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/source"
)

// gateway is a gateway with a configuration, whose upstream answers with 200.
func gateway(t *testing.T, yaml string) (*diana.Limiter, http.Handler) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Vocabulary: vocabulary(), Logger: slog.New(slog.DiscardHandler)}.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, chain(l, testKey, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// ask sends a request of a tenant, or with another token, and returns the answer.
func ask(h http.Handler, method, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// of returns a token of a tenant.
func of(tenant string) string {
	return sign(testKey, hs256, fmt.Sprintf(`{"tenant":%q,"exp":%d}`, tenant, time.Now().Add(time.Hour).Unix()))
}

// The configuration of the example, with a Redis of the test's own: all four words at work.
func TestGateway(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := startRedis(t)
	// Redis is not given up before it is stopped, however slow the machine is.
	yaml := strings.Replace(string(text), "redis://127.0.0.1:6379/0", r.url+"\n  timeout: 10s", 1)
	l, h := gateway(t, yaml)
	other, h2 := gateway(t, yaml)
	for _, l := range []*diana.Limiter{l, other} {
		eventually(t, func() bool { s := l.Status(); return !s.Degraded && s.Gateways == 2 })
	}
	if got := l.Config().Remote.URL; got != "dir:///etc/gateway/limits.d" {
		t.Errorf("the centre is %q", got)
	}

	// A cool-down counts each tenant over all gateways.
	for i, want := range []int{200, 200, 200, 503, 503} {
		w := ask([]http.Handler{h, h2}[i%2], "POST", "/codes", of("acme"))
		if w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
		if retry, _ := strconv.Atoi(w.Header().Get("Retry-After")); want == 503 && (retry < 3500 || retry > 3600) {
			t.Errorf("retry after %d s, want an hour", retry)
		}
	}
	w := ask(h, "POST", "/codes", of("umbrella"))
	if w.Code != 200 {
		t.Errorf("another tenant: %d, want 200", w.Code)
	}
	if policy := w.Header().Get("RateLimit-Policy"); !strings.Contains(policy, `"quota";q=500000;w=1209600`) {
		t.Errorf("the policy is %s, want a quota of a fortnight", policy)
	}

	// Without Redis each gateway continues with what it knows: a pausing actor still pauses,
	// and other actors have the share of this gateway.
	r.stop()
	eventually(t, func() bool { ask(h, "POST", "/codes", of("acme")); return l.Status().Degraded })
	if w := ask(h, "POST", "/codes", of("initech")); w.Code != 200 || !strings.Contains(w.Header().Get("RateLimit"), `"codes";r=0`) {
		t.Errorf("without Redis: %d %s, want one of three", w.Code, w.Header().Get("RateLimit"))
	}
	if w := ask(h, "POST", "/codes", of("initech")); w.Code != 503 {
		t.Errorf("without Redis: %d, want the share to be used up", w.Code)
	}
}

// A client without a valid token is refused, and the rule counts its address.
func TestGatewayWithoutTenant(t *testing.T) {
	t.Parallel()
	_, h := gateway(t, "{url: /, rules: [{actor: tenant, unit: fortnight, rpu: 3, algo: CD}]}")
	for i, token := range []string{"", "wrong", sign(testKey[:31], hs256, `{"tenant":"acme","exp":9e9}`)} {
		if w := ask(h, "GET", "/", token); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("request %d: %d, want 401", i, w.Code)
		}
	}
	if w := ask(h, "GET", "/", "wrong"); w.Code != 503 || !strings.HasPrefix(w.Header().Get("Retry-After"), "1209") {
		t.Errorf("the fourth: %d, to be repeated in %s s, want 503 and a fortnight", w.Code, w.Header().Get("Retry-After"))
	}
	if w := ask(h, "GET", "/", of("acme")); w.Code != 200 {
		t.Errorf("a tenant from there: %d, want 200", w.Code)
	}
}

// A caller without an HTTP request names the tenant itself.
func TestTenantByName(t *testing.T) {
	t.Parallel()
	l, _ := gateway(t, "{url: /, rules: [{actor: tenant, unit: fortnight, rpu: 1, algo: cool-down}]}")
	for i, tenant := range []string{"acme", "umbrella", "acme"} {
		d, err := l.Take(context.Background(), diana.Request{Path: "/", Actors: map[string]string{"tenant": tenant}})
		if err != nil || d.Allowed != (i < 2) {
			t.Errorf("request %d: %v %v", i, d.Allowed, err)
		}
		d.Done()
	}
}

// Every configuration that Diana's documents and tests show means the same with the words of
// this gateway as without: the same rules, counted under the same names. An invalid configuration
// stays invalid.
func TestExistingConfigurations(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/diana-limiter/diana").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	texts := map[string]string{} // by where it is from
	for _, pattern := range []string{"*.md", "docs/*.md", "config/testdata/*.yaml", "cmd/diana/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(file) == ".yaml" {
				texts[file] = string(text)
				continue
			}
			for i, b := range block.FindAllStringSubmatch(string(text), -1) {
				texts[fmt.Sprint(file, " block ", i)] = b[1]
			}
		}
	}
	plain, extended := config.DefaultVocabulary(), vocabulary()
	known := source.Kind{Schemes: []string{"etcd"}} // of a module of its own
	plain.Sources = append(plain.Sources, known)
	extended.Sources = append(extended.Sources, known)
	good := 0
	for name, text := range texts {
		want, err := plain.Parse("x", []byte(text))
		if err != nil {
			if _, err := extended.Parse("x", []byte(text)); err == nil && !strings.Contains(name, "extending.md") {
				t.Errorf("%s: is valid with more words", name)
			}
			continue
		}
		good++
		got, err := extended.Parse("x", []byte(text))
		if err != nil {
			t.Errorf("%s: with more words: %v", name, err)
		} else if d := diff.Configs(want, got); len(d) > 0 {
			t.Errorf("%s: more words change its meaning: %v", name, d)
		}
	}
	if good < 20 {
		t.Errorf("%d good configurations were found, want many", good)
	}
}

// The folder wins over the limits of the file, and a change there is in force soon.
func TestFolderInForce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "team.yaml"), fmt.Appendf(nil, "{url: /, rules: [{name: %s, actor: tenant, unit: fortnight, rpu: 3, algo: CD}]}", name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	l, h := gateway(t, fmt.Sprintf("remote: {url: \"dir://%s\"}\nlimits: [{url: /, rules: [{name: local, rpu: 1}]}]", dir))
	for i := range 4 {
		if got, want := ask(h, "GET", "/", of("a")).Code, http.StatusOK; i < 3 && got != want || i == 3 && got == want {
			t.Errorf("request %d: %d", i, got)
		}
	}
	put("second")
	for end := time.Now().Add(20 * time.Second); l.Status().Rules[0].Name != "second"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in force: %+v", l.Status().Config)
		}
	}
}
