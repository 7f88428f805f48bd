// SPDX-License-Identifier: MIT

package consoletest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/etcdtest"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var (
	browser  = flag.String("browser", "", "the Chromium to use; without it the test is skipped")
	pictures = flag.String("pictures", "", "the folder for new pictures; without it they are not kept")
	traffic  = flag.Duration("traffic", 0, "how long clients send requests before the first step, for pictures of charts")
	step     = flag.String("step", "", "run only the steps of drive.mjs whose names contain this")
)

const token = "correct-horse-battery-staple"

// hostile is an actor that a client makes up. A page that inserts it as markup shows a dialog.
const hostile = `<img src=x onerror=alert(1)>`

// build returns the program of this tree.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "diana")
	if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// embedded fails if the chart library of the page is not that of the npm package.
func embedded(t *testing.T) {
	t.Helper()
	for part, file := range map[string]string{"uplot.js": "dist/uPlot.iife.min.js", "uplot.css": "dist/uPlot.min.css", "uplot.LICENSE.txt": "LICENSE"} {
		got, err := os.ReadFile(filepath.Join("../internal/console/page", part))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("node_modules/uplot", file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s of the package", part, file)
		}
	}
}

// gateway is a running diana serve.
type gateway struct{ url, admin string }

var addresses = regexp.MustCompile(`(?s)diana: serving on (\S+).*diana: admin on (\S+)`)

// serve starts a gateway with a configuration file.
func serve(t *testing.T, program, yaml string, flags ...string) gateway {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	p, err := testproc.Start(log, program, append([]string{"serve", "--config", write(t, dir, "diana.yaml", yaml), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	var g gateway
	testproc.Eventually(t, func() bool {
		text, _ := os.ReadFile(log) // another try follows
		found := addresses.FindSubmatch(text)
		if found != nil {
			g = gateway{string(found[1]), string(found[2])}
		}
		return found != nil
	})
	return g
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// limits is the remote configuration at the start: an API, and 60 rules more, so that there are two pages.
func limits() string {
	var b strings.Builder
	b.WriteString(`# The limits of the shop.
- url: /
  rules:
  - {name: each-client, actor: "header:X-User", unit: second, rpu: 20, scope: global}   # per client
- url: /search
  rules:
  - {name: search, actor: "header:X-User", unit: second, rpu: 2, algo: SW}
- url: POST /login
  rules:
  - {name: login, actor: "header:X-User", unit: minute, rpu: 5, algo: SW, scope: global}
- url: /reports
  rules:
  - {name: reports, actor: "header:X-User", unit: second, rpu: 1, algo: W, mode: shadow}
`)
	for i := range 60 {
		fmt.Fprintf(&b, "- url: /section-%02[1]d\n  rules:\n  - {name: section-%02[1]d, actor: ip, unit: second, rpu: 1000}\n", i)
	}
	return b.String()
}

// attacker returns the actor who attacks the console. On a picture readers would take hostile for a hole.
func attacker() string {
	if *pictures != "" {
		return "oscar"
	}
	return hostile
}

// load sends requests to gateways until the test ends, 30 to 90 a second to each. The client that is refused most is
// mallory, who sends more than half of them in 6 of 20 minutes.
func load(t *testing.T, gateways ...gateway) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	t.Cleanup(func() { cancel(); sending.Wait() })
	users := []string{"ann", "bob", "ann", attacker(), "mallory", "carol", "bob", attacker(), "dave", "erin"}
	paths := []string{"/search?q=boots", "/", "/search?q=hats", "/reports", "/section-07"}
	began := time.Now()
	for _, g := range gateways {
		sending.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			var due float64
			for i := 0; ; i++ {
				for ; due < 1; due += 0.6 + 0.3*math.Sin(time.Since(began).Minutes()*math.Pi/10) {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
				}
				due--
				user := users[i/2%len(users)]
				if i%2 == 0 && math.Mod(time.Since(began).Minutes(), 20) < 6 {
					user = "mallory"
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+paths[i/len(users)%len(paths)], nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-User", user)
				if w, err := http.DefaultTransport.RoundTrip(r); err == nil { // a gateway that stops refuses connections
					_ = w.Body.Close()
				}
			}
		})
	}
}

// manyRules is a configuration of 10,000 rules.
func manyRules() string {
	var b strings.Builder
	b.WriteString("max_keys: 400000\nlimits:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "- {url: /p%[1]d, rules: [{name: rule-%[1]d, actor: 'header:X-User', unit: second, rpu: 1, algo: W}]}\n", i)
	}
	return b.String()
}

// loadMany sends requests of many clients to the rules of manyRules until the test ends.
func loadMany(t *testing.T, g gateway) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	t.Cleanup(func() { cancel(); sending.Wait() })
	sending.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/p%d", g.url, i/2%10_000), nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("X-User", fmt.Sprint("u", i/2%100_000))
			if w, err := http.DefaultTransport.RoundTrip(r); err == nil {
				_ = w.Body.Close()
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// strangers is the site of an attacker: its pages show the console in a frame, and send forms to it.
func strangers(t *testing.T, console string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/frame" {
			_, _ = fmt.Fprintf(w, `<iframe src="%s/" width=800 height=600></iframe>`, console)
			return
		}
		_, _ = fmt.Fprintf(w, `<form method=post enctype="text/plain" action="%s%s"><input name='{"rule":"search","actor":"mallory","x":"' value='"}'></form><script>document.forms[0].submit()</script>`, console, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestConsole uses the console of two gateways in a browser.
func TestConsole(t *testing.T) {
	if *browser == "" {
		t.Skip(`"make console" runs this test in a browser`)
	}
	embedded(t)
	program := build(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	config := fmt.Sprintf("redis: {url: %q}\nremote: {url: %q}\n", redistest.Start(t).URL(), "etcd://"+etcdtest.Start(t).Addr()+"/shop/limits")
	push := exec.Command(program, "push", "--config", write(t, dir, "push.yaml", config), write(t, dir, "limits.yaml", limits()))
	if out, err := push.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	flags := []string{"--upstream", upstream.URL, "--admin-token", "file:" + write(t, dir, "token", token), "--recent-actors", "plain"}
	a, b := serve(t, program, config, flags...), serve(t, program, config, flags...)
	load(t, a, b)
	time.Sleep(*traffic)
	many := serve(t, program, manyRules(), "--upstream", upstream.URL)
	if *step == "" || strings.Contains("ten thousand rules", *step) {
		loadMany(t, many)
	}
	folder := t.TempDir()
	setting, err := json.Marshal(map[string]string{
		"a": a.admin, "b": b.admin, "requests": a.url, "many": many.admin, "token": token, "browser": *browser, "hostile": attacker(),
		"pictures": folder, "step": *step, "strangers": strangers(t, a.admin),
	})
	if err != nil {
		t.Fatal(err)
	}
	drive := exec.Command("node", "drive.mjs")
	drive.Env = append(os.Environ(), "CONSOLE="+string(setting))
	out, err := drive.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	shrink(t, folder, *pictures)
}
