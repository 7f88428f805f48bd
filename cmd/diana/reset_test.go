// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
)

// The command has each gateway reset the actor, and prints the keys that were reset.
func TestResetCommand(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, actorRules)
	place := tokenIn(t, "s3cret-of-the-operators")
	var token admin.Token
	if err := token.UnmarshalText([]byte(place)); err != nil {
		t.Fatal(err)
	}
	var keys []string
	var fail error
	reset := admin.Reset(l.Config, func(_ context.Context, rule string, key ...string) error {
		keys = append(keys, rule+" "+key[0])
		return fail
	}, slog.New(slog.DiscardHandler))
	gateway := httptest.NewServer(admin.Flags{AdminToken: token}.Guard(http.NotFoundHandler(), reset, slog.New(slog.DiscardHandler)))
	defer gateway.Close()
	redirect := httptest.NewServer(http.RedirectHandler(gateway.URL+"/reset", http.StatusTemporaryRedirect))
	defer redirect.Close()
	file := filepath.Join(t.TempDir(), "diana.yaml")
	if err := os.WriteFile(file, []byte(actorRules), 0o600); err != nil {
		t.Fatal(err)
	}
	runReset := func(admin string, args ...string) (status int, out, errs string) {
		var o, e bytes.Buffer
		args = append([]string{"reset", "--config", file, "--admin", admin, "--admin-token", place}, args...)
		status = run(t.Context(), args, &o, &e)
		return status, strings.ReplaceAll(o.String(), admin, "GATEWAY"), strings.ReplaceAll(e.String(), admin, "GATEWAY")
	}

	status, out, errs := runReset(gateway.URL, "--rule", "both", "--actor", "account=ann", "--actor", "ip=192.0.2.1")
	want := "GATEWAY: ip=192.0.2.1;account=3:ann; reset\nGATEWAY: ip=192.0.2.1;header:X-Account-Id=3:ann; reset\nGATEWAY: ip=192.0.2.1;cookie:acct=3:ann; reset\n"
	if status != command.StatusGood || out != want || errs != "" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	if len(keys) != 3 || !slices.Contains(keys, "both ip=192.0.2.1;header:X-Account-Id=3:ann;") {
		t.Errorf("%q were reset", keys)
	}
	fail = errors.New("no connection")
	if status, out, errs = runReset(gateway.URL, "--rule", "ip", "--actor", "192.0.2.1"); status != command.StatusBad || out != "" || !strings.Contains(errs, "no connection") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	if status, out, errs = runReset(redirect.URL, "--rule", "ip", "--actor", "192.0.2.1"); status != command.StatusBad || out != "" || !strings.Contains(errs, "GATEWAY: not reset: 307 Temporary Redirect") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

const actorRules = `
identity:
  account: ["header:X-Account-Id", "cookie:acct"]
limits:
  - url: /
    rules:
      - {name: all, rpu: 1}
      - {name: account, actor: account, rpu: 1}
      - {name: ip, actor: ip, rpu: 1}
      - {name: plan, actor: "header:X-Plan", rpu: 1}
      - {name: host, actor: host, rpu: 1}
      - {name: both, actor: [ip, account], rpu: 1}
`

// newLimiter returns a limiter for a configuration.
func newLimiter(t *testing.T, text string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
