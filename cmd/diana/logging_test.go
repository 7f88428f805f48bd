// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/internal/plan"
)

// Lines name clients as the identity finds them.
func TestIdentitiesInLog(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, `
identity:
  account: [header:X-Account-Id, cookie:account]
  trusted_proxies: [10.0.0.0/8]
limits: [{url: /, rules: [{rpu: 100}]}]
`)
	for _, test := range []struct{ peer, forwarded, account, device, want string }{
		{"192.0.2.1:1234", "", "", "", "[ip=192.0.2.1]"},
		{"192.0.2.1:1234", "198.51.100.1", "", "", "[ip=192.0.2.1]"},
		{"[2001:db8::1]:1234", "", "", "", "[ip=2001:db8::1]"},
		{"[::ffff:10.0.0.1]:1234", "198.51.100.1", "", "", "[ip=198.51.100.1]"},
		{"10.0.0.1:1234", "198.51.100.1, 10.0.0.2", "", "", "[ip=198.51.100.1]"},
		{"@", "", "", "", "[]"},
		{"192.0.2.1:1234", "", "account=ann", "", "[account=ann ip=192.0.2.1]"},
		{"192.0.2.1:1234", "", "account=ann", "d1", "[account=ann device=d1 ip=192.0.2.1]"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = test.peer
		for name, value := range map[string]string{"X-Forwarded-For": test.forwarded, "Cookie": test.account, "X-Device-Id": test.device} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := fmt.Sprint(logs.Identities(l, r)); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}

// A refusal is one line in both formats, whatever the client sends.
func TestRefusalLines(t *testing.T) {
	t.Parallel()
	hostile := plan.ActorText("header:X-Account-Id=9:a\nb\x1b[2J;")
	plain := diana.Refusal{Rule: "few", Actor: "header:X-Account-Id=3:ann;", Method: "GET", Path: "/a%20b", Count: 7}
	shadow := diana.Refusal{Rule: "few", Actor: "ip=192.0.2.1;", Method: "GET", Path: "/", Count: 1, Shadow: true}
	for _, test := range []struct {
		flags   logs.Flags
		refusal diana.Refusal
		want    string
	}{
		{logs.Flags{}, plain, `level=INFO msg=refusal rule=few actor="header:X-Account-Id=3:ann;" value=ann method=GET path=/a%20b decision=refused count=7`},
		{logs.Flags{}, shadow, `level=INFO msg=refusal rule=few actor="ip=192.0.2.1;" value=192.0.2.1 method=GET path=/ decision=shadow_refused count=1`},
		{logs.Flags{}, diana.Refusal{LeftOut: 3}, `level=INFO msg="refusals left out" count=3`},
		{logs.Flags{LogActors: "hash"}, plain, `actor=sha256:49915e0d7d4b402e method=GET`},
		{logs.Flags{LogActors: "off"}, plain, `rule=few method=GET`},
		{logs.Flags{LogLevel: "warn"}, plain, ``},
		{logs.Flags{LogFormat: "json"}, plain, `"msg":"refusal","rule":"few","actor":"header:X-Account-Id=3:ann;","value":"ann","method":"GET","path":"/a%20b","decision":"refused","count":7}`},
		{logs.Flags{LogFormat: "json", LogActors: "off"}, plain, `"rule":"few","method"`},
		{logs.Flags{}, diana.Refusal{Rule: "few", Actor: hostile, Count: 1}, `actor="\"header:X-Account-Id=9:a\\nb\\x1b[2J;\""`},
		{logs.Flags{LogFormat: "json"}, diana.Refusal{Rule: "few", Actor: "a\u009b2J", Count: 1}, `"actor":"\"a\\u009b2J\""`},
	} {
		if test.flags.LogLevel == "" {
			test.flags.LogLevel = "info"
		}
		var b bytes.Buffer
		logs.Refusals(test.flags.Logger(&b))(test.refusal)
		line := b.String()
		if !strings.Contains(line, test.want) || strings.Count(line, "\n") > 1 || test.want == "" && line != "" {
			t.Errorf("%+v: %s\nwant %s", test.flags, line, test.want)
		}
		if test.flags.LogFormat == "json" && !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}
