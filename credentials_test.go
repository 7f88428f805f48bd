// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/apikeys"
	"github.com/diana-limiter/diana/rule"
)

// keyed is a Limiter with API keys, and a handler behind it that notes what arrives.
type keyed struct {
	*diana.Limiter
	keys    map[string]string // by account
	arrived http.Header
	handler http.Handler
}

// withKeys returns a Limiter whose file has a key of ann, a pro, one of bob, and one of eve that has ended.
// identity is text in the mapping of that name.
func withKeys(t *testing.T, identity, limits string) *keyed {
	t.Helper()
	k := &keyed{keys: map[string]string{}}
	var lines []string
	for _, of := range [][3]string{{"ann", "pro", ""}, {"bob", "", ""}, {"eve", "", "2020-01-01"}} {
		key, line, err := apikeys.New(of[0], of[1], of[2])
		if err != nil {
			t.Fatal(err)
		}
		k.keys[of[0]], lines = key, append(lines, line)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("limits.yaml", []byte(fmt.Sprintf("identity: {keys: {file: %q}, account: [key:account], %s}\nlimits:\n- url: /\n  rules: %s\n", file, identity, limits)))
	if err != nil {
		t.Fatal(err)
	}
	if k.Limiter, err = (diana.Options{}).New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	k.handler = k.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { k.arrived = r.Header.Clone() }))
	return k
}

// do sends a request from an address with these lines of its header, and returns the response.
func (k *keyed) do(address string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1"
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	k.arrived = nil
	w := httptest.NewRecorder()
	k.handler.ServeHTTP(w, r)
	return w
}

// A key counts for its account whatever field has it, and does not reach the next handler.
func TestKeyAccount(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "upstream_headers: {Authorization: Bearer of-provider}", "[{actor: account, unit: hour, rpu: 4, algo: W}]")
	ann := k.keys["ann"]
	for i, field := range []string{"Authorization: Bearer " + ann, "X-Api-Key: " + ann, "Api-Key: " + ann, "X-Goog-Api-Key: " + ann, "Authorization: bearer  " + ann} {
		want := http.StatusOK
		if i == 4 {
			want = http.StatusServiceUnavailable
		}
		if got := k.do(fmt.Sprintf("192.0.2.%d", i), field); got.Code != want {
			t.Errorf("%d: %d, want %d", i, got.Code, want)
		}
		name, _, _ := strings.Cut(field, ":")
		if want == http.StatusOK && (k.arrived.Get("Authorization") != "Bearer of-provider" || name != "Authorization" && k.arrived[name] != nil) {
			t.Errorf("%s: the next handler got %v", field, k.arrived)
		}
	}
	if got := k.do("192.0.2.1", "X-Api-Key: "+k.keys["bob"]); got.Code != http.StatusOK {
		t.Errorf("bob: %d", got.Code)
	}
}

// The class of a key picks its limit.
func TestKeyClass(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W, class: 'key:class', classes: {pro: {rpu: 3}}}]")
	for name, want := range map[string]int{"ann": 3, "bob": 1} {
		n := 0
		for range 5 {
			if k.do("192.0.2.1", "X-Api-Key: "+k.keys[name]).Code == http.StatusOK {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d requests, want %d", name, n, want)
		}
	}
}

// A credential that is there and not valid is 401, whatever else the request has.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "", "[{actor: account, unit: hour, rpu: 100, algo: W}]")
	ann, bob := k.keys["ann"], k.keys["bob"]
	for i, fields := range [][]string{
		{"X-Api-Key: guessed"},
		{"X-Api-Key: " + k.keys["eve"]},
		{"X-Api-Key: " + ann + "x"},
		{"Authorization: Bearer"},
		{"Authorization: " + ann + " " + bob},
		{"Authorization: Bearer a.b.c"},
		{"Authorization: Bearer " + ann + ", Bearer " + bob},
		{"Authorization: Bearer " + ann, "Authorization: Bearer " + bob},
		{"Authorization: Bearer " + ann, "X-Api-Key: " + bob},
		{"Authorization: Bearer " + ann, "X-Api-Key: guessed"},
		{"X-Api-Key: " + ann, "X-Api-Key: " + bob},
		{"X-Api-Key: " + strings.Repeat("a", 8<<10+1)},
		{"X-Api-Key: \xff"},
	} {
		got := k.do(fmt.Sprintf("192.0.2.%d", i), fields...)
		want := http.StatusUnauthorized
		if i == 4 { // of another scheme, which is not ours
			want = http.StatusOK
		}
		if got.Code != want || want == 401 && (got.Header().Get("WWW-Authenticate") == "" || k.arrived != nil) {
			t.Errorf("%.60q: %d %v", fields, got.Code, got.Header())
		}
	}
	if n := k.Rejected()["token"]; n != 12 {
		t.Errorf("%d rejected, want 12", n)
	}
}

// Without required: any a request without a credential counts by its address, and never gets the upstream's fields.
// A dropped credential gives no fresh allowance where one is required.
func TestDroppedCredential(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "upstream_headers: {X-Provider: secret}", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	if got := k.do("192.0.2.1", "X-Provider: mine", "Authorization: Basic YTpi"); got.Code != http.StatusOK ||
		k.arrived.Get("X-Provider") != "" || k.arrived.Get("Authorization") != "Basic YTpi" {
		t.Errorf("%d %v", got.Code, k.arrived)
	}
	if got := k.do("192.0.2.1", "X-Api-Key: "); got.Code != http.StatusServiceUnavailable {
		t.Errorf("an empty key: %d", got.Code)
	}
	k = withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	for _, fields := range [][]string{nil, {"X-Api-Key: "}, {"Authorization: Basic YTpi"}} {
		if got := k.do("192.0.2.1", fields...); got.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d", fields, got.Code)
		}
	}
	if k.do("192.0.2.1", "X-Api-Key: "+k.keys["ann"]).Code != 200 || k.do("192.0.2.2", "X-Api-Key: "+k.keys["ann"]).Code != 503 {
		t.Error("the key counts by its account alone")
	}
}

// After 20 failures of an address its credentials are not verified for the rest of the minute. Others are.
func TestGuessedKeys(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "", "[{actor: account, unit: hour, rpu: 100, algo: W}]")
	var statuses []int
	for i := range 22 {
		statuses = append(statuses, k.do("192.0.2.1", fmt.Sprintf("X-Api-Key: guess-%d", i)).Code)
	}
	if want := append(slices.Repeat([]int{401}, 20), 429, 429); !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
	right := "X-Api-Key: " + k.keys["ann"]
	if got := k.do("192.0.2.1", right); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
		t.Errorf("the right key after the guesses: %d %v", got.Code, got.Header())
	}
	if got := k.do("192.0.2.2", right); got.Code != http.StatusOK {
		t.Errorf("from another address: %d", got.Code)
	}
	if got := k.do("192.0.2.1"); got.Code != http.StatusOK {
		t.Errorf("without a credential: %d", got.Code)
	}
}

// Local rules that need no identity come first: what they refuse is not verified.
func TestRulesBeforeCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: ip, unit: hour, rpu: 0, algo: W}, {actor: account, unit: hour, rpu: 100, algo: W}]")
	for range 30 {
		if got := k.do("192.0.2.1", "X-Api-Key: guessed"); got.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d", got.Code)
		}
	}
	if n := k.Rejected()["token"]; n != 0 {
		t.Errorf("%d rejected", n)
	}
}

// A program brings its own kind of credentials, or says what it has verified itself.
func TestProgramsProofs(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	q := diana.Request{Path: "/", HTTP: httptest.NewRequest(http.MethodGet, "/", nil), Proofs: map[string]rule.Proof{
		"key": func(name string) string { return map[string]string{"account": "zoe"}[name] },
	}}
	for i, want := range []bool{true, false} {
		d, err := k.Take(t.Context(), q)
		if err != nil || d.Allowed != want {
			t.Errorf("%d: %v %v", i, d.Allowed, err)
		}
		d.Done()
	}
	q.Proofs = nil
	if _, err := k.Take(t.Context(), q); err == nil || !strings.Contains(err.Error(), "lacks") {
		t.Error(err)
	}
}
