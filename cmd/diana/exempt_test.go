// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/etcdtest"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

const exemptDocument = `# limits of the shop
- url: /
  rules:
    - name: few # requests
      actor: "header:X-User"
      algo: W
      unit: day
      rpu: 3
      scope: global
`

// exempting starts gateways with one Redis and one remote configuration, which has exemptDocument.
func exempting(t *testing.T, n int) (gateways []*operated, version string) {
	t.Helper()
	remote := "etcd://" + etcdtest.Start(t).Addr() + "/diana/limits"
	redis := redistest.Start(t).URL()
	token := tokenIn(t, "s3cret-of-the-operators\n")
	for range n {
		yaml := fmt.Sprintf("redis: {url: %q, %s}\nremote: {url: %q}\nlimits: []", redis, patient, remote)
		gateways = append(gateways, &operated{serve(t, yaml, newSite(t, nil).upstream.URL, "--admin-token", token)})
	}
	status, answer := gateways[0].call(t, "POST", "/api/v1/push", map[string]any{"text": exemptDocument, "expect": ""})
	if status != http.StatusOK {
		t.Fatal(status, answer)
	}
	version = answer["version"].(string)
	for _, g := range gateways {
		g.awaits(t, version)
		testproc.Eventually(t, func() bool { return !g.status(t).Degraded })
	}
	return gateways, version
}

// ask sends a request of a user, and returns the status.
func (o *operated) ask(t *testing.T, user string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	return exchange.RoundTrip(t, r).Status
}

// counter returns what one gateway says of an actor in the rule "few".
func (o *operated) counter(t *testing.T, query string) map[string]any {
	t.Helper()
	status, answer := o.call(t, "GET", "/api/v1/actor?"+query, nil)
	list, _ := answer["rules"].([]any)
	if status != http.StatusOK || len(list) != 1 {
		t.Fatalf("%s: %d %v", query, status, answer)
	}
	return list[0].(map[string]any)
}

// An operator looks at an actor and changes nothing. An exemption by one gateway holds in both, and ends by itself:
// the counts from before are then still there.
func TestExemptInAllGateways(t *testing.T) {
	t.Parallel()
	gateways, version := exempting(t, 2)
	a, b := gateways[0], gateways[1]
	for i, want := range []int{200, 200, 200, 503} {
		if status := gateways[i%2].ask(t, "ann"); status != want {
			t.Fatalf("request %d: %d", i, status)
		}
	}
	for _, query := range []string{"actor=ann", "actor=ann&rule=few", "actor=header:X-User%3D3:ann%3B"} {
		for range 3 {
			if c := b.counter(t, query); c["allowed"] != false || c["remaining"] != 0.0 || c["limit"] != 3.0 || c["key"] != "header:X-User=3:ann;" || c["reset_seconds"].(float64) <= 0 {
				t.Errorf("%s: %v", query, c)
			}
		}
	}
	if c := a.counter(t, "actor=bob"); c["allowed"] != true || c["remaining"] != 3.0 {
		t.Errorf("another actor: %v", c)
	}
	var until time.Time
	var status int
	var answer map[string]any
	testproc.Eventually(t, func() bool { // a gateway rejects an exemption that has ended when it reads it
		until = time.Now().Add(4 * time.Second).Truncate(time.Second)
		status, answer = a.call(t, "POST", "/api/v1/exempt", map[string]any{"rule": "few", "actor": "ann", "until": until, "expect": version, "by": "op", "comment": "a fair"})
		return status != http.StatusBadRequest || time.Now().Before(until)
	})
	if status != http.StatusOK {
		t.Fatal(status, answer)
	}
	for _, g := range gateways {
		g.awaits(t, answer["version"])
	}
	for i := range 6 {
		if status := gateways[i%2].ask(t, "ann"); status != http.StatusOK && time.Now().Before(until) {
			t.Errorf("exempt: %d", status)
		}
	}
	if c := b.counter(t, "actor=ann"); time.Now().Before(until) && (c["excepted"] != true || c["remaining"] != nil || c["until"] != until.UTC().Format(time.RFC3339)) {
		t.Errorf("exempt: %v", c)
	}
	if status, config := a.call(t, "GET", "/api/v1/config", nil); status != http.StatusOK || config["text"] != strings.Replace(exemptDocument, "# requests\n",
		"# requests\n      overrides: {\"ann\": {exempt: true, until: "+until.UTC().Format(time.RFC3339)+"}}\n", 1) {
		t.Errorf("the document is now\n%s", config["text"])
	}
	for _, g := range gateways { // also of exemptions that the test was too slow to use
		if !testproc.Becomes(func() bool { return g.ask(t, "ann") == http.StatusServiceUnavailable }) {
			t.Error("the exemption does not end")
		}
		if time.Now().Before(until) {
			t.Error("the exemption ended early")
		}
	}
	if status, answer := b.call(t, "POST", "/api/v1/reset", map[string]any{"rule": "few", "actor": "ann"}); status != http.StatusOK {
		t.Error(status, answer)
	}
	if !testproc.Becomes(func() bool { return a.counter(t, "actor=ann")["remaining"] == 3.0 }) {
		t.Errorf("after the reset: %v", a.counter(t, "actor=ann"))
	}
}

// Of operators who exempt and push at once, one changes the document, and the others get a conflict.
func TestExemptAndPushAtOnce(t *testing.T) {
	t.Parallel()
	gateways, version := exempting(t, 2)
	var running sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		running.Go(func() {
			path, body := "exempt", map[string]any{"rule": "few", "actor": fmt.Sprint("user", i), "seconds": 3600, "expect": version}
			if i%2 == 1 {
				path, body = "push", map[string]any{"text": exemptDocument + fmt.Sprint("# ", i, "\n"), "expect": version}
			}
			statuses[i], _ = gateways[i%2].call(t, "POST", "/api/v1/"+path, body)
		})
	}
	running.Wait()
	slices.Sort(statuses)
	if want := []int{200, 409, 409, 409, 409, 409, 409, 409}; !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
}

// An exemption that cannot be made has an error that says why, and changes nothing.
func TestExemptRefused(t *testing.T) {
	t.Parallel()
	gateways, version := exempting(t, 1)
	g := gateways[0]
	for _, row := range []struct {
		body   map[string]any
		status int
		want   string
	}{
		{map[string]any{"rule": "few", "actor": "ann", "expect": version}, 400, "until"},
		{map[string]any{"rule": "few", "actor": "ann", "seconds": 0, "expect": version}, 400, "seconds: expected 1 to"},
		{map[string]any{"rule": "few", "actor": "ann", "until": "2020-01-01T00:00:00Z", "expect": version}, 400, "until: expected a moment"},
		{map[string]any{"rule": "few", "actor": "ann", "seconds": 5}, 400, "expect"},
		{map[string]any{"rule": "few", "seconds": 5, "expect": version}, 400, "actor"},
		{map[string]any{"rule": "none", "actor": "ann", "seconds": 5, "expect": version}, 404, "no rule has the name"},
		{map[string]any{"rule": "few", "actor": []string{"ann", "bob"}, "seconds": 5, "expect": version}, 422, "given twice"},
		{map[string]any{"rule": "few", "actor": "ann", "seconds": 5, "expect": "000000000000"}, 409, "another writer"},
	} {
		if status, answer := g.call(t, "POST", "/api/v1/exempt", row.body); status != row.status || !strings.Contains(fmt.Sprint(answer["detail"]), row.want) {
			t.Errorf("%v: %d %v, want %d %s", row.body, status, answer, row.status, row.want)
		}
	}
	o := visitor{T: t, admin: g.admin}
	if w := o.send("POST", "/api/v1/exempt", `{}`); w.Status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", w.Status)
	}
	if _, config := g.call(t, "GET", "/api/v1/config", nil); config["version"] != version {
		t.Errorf("the document has changed: %v", config)
	}
	if status, out, errs := runDiana(t, "exempt", "--config", g.file, "--rule", "few", "--actor", "ann", "--for", "1h"); status != command.StatusGood || !strings.Contains(out, "version ") {
		t.Errorf("diana exempt ended with %d and printed\n%s%s", status, out, errs)
	}
	if status, out, errs := runDiana(t, "rollback", "--config", g.file, "--list"); status != command.StatusGood || !strings.Contains(out, "exempt ann from rule few until ") {
		t.Errorf("rollback --list ended with %d and printed\n%s%s", status, out, errs)
	}
	if status, _, errs := runDiana(t, "exempt", "--config", g.file, "--rule", "few", "--actor", "ann", "--for", "0s"); status != command.StatusUsage || !strings.Contains(errs, "--for: 0s, expected 1s to") {
		t.Errorf("diana exempt --for 0s ended with %d and printed %s", status, errs)
	}
}
