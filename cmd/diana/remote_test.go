// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/etcdtest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/source"
)

// remoteFleet is a set of gateways that follow a document in a real etcd.
type remoteFleet struct {
	*testing.T
	etcd     *etcdtest.Server
	url      string
	document source.Source
	gateways []*served
	client   *http.Client
}

func startCentred(t *testing.T, gateways int) *remoteFleet {
	t.Helper()
	c := &remoteFleet{T: t, etcd: etcdtest.Start(t)}
	c.url = "etcd://" + c.etcd.Addr() + "/diana/limits"
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, c.document, err = command.Vocabulary().OpenSource(source.Options{URL: u}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.document.Close() })
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	for range gateways {
		c.gateways = append(c.gateways, serve(t, fmt.Sprintf("remote: {url: %q}\nlimits: [{url: /, rules: [{name: local, rpu: 1000000}]}]", c.url), upstream.URL))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport}
	return c
}

// put writes a document of several rules, all of whose names begin with version.
func (c *remoteFleet) put(version string) {
	c.Helper()
	text := fmt.Sprintf("[{url: /, rules: [{name: %[1]s-a, rpu: 1000000}, {name: %[1]s-b, rpu: 1000000}]}, {url: /x, rules: [{name: %[1]s-c, rpu: 1000000}]}]", version)
	var err error
	if !testproc.Becomes(func() bool { // the first time after a fault the connection may be broken
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = c.document.Put(ctx, []byte(text))
		return err == nil
	}) {
		c.Fatal(err)
	}
}

var ruleNames = regexp.MustCompile(`"([^"-]+)(?:-[a-z])?"`)

// versions sends a request to a gateway and returns the versions of the rules that evaluated it.
// Any goroutine may call it.
func (c *remoteFleet) versions(gateway int) map[string]int {
	r, err := c.client.Get(c.gateways[gateway].url + "/x")
	if err != nil {
		c.Error(err)
		return nil
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		c.Errorf("gateway %d: status %d", gateway, r.StatusCode)
	}
	seen := map[string]int{}
	for _, m := range ruleNames.FindAllStringSubmatch(r.Header.Get("RateLimit-Policy"), -1) {
		seen[m[1]]++
	}
	return seen
}

// await waits until every gateway evaluates by a version, and returns how long that took.
func (c *remoteFleet) await(version string) time.Duration {
	c.Helper()
	begin := time.Now()
	for i := range c.gateways {
		if !testproc.Becomes(func() bool { return c.versions(i)[version] > 0 }) {
			c.Fatalf("gateway %d does not evaluate by %s: %+v", i, version, c.gateways[i].status(c.T).Config)
		}
	}
	return time.Since(begin).Round(time.Millisecond)
}

// A document that is put into etcd is active in all gateways at once. While it changes 300
// times under load, no request fails, and each is evaluated by one version.
func TestCentreUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCentred(t, 3)
	for i := range 5 {
		version := fmt.Sprintf("first%d", i)
		c.put(version)
		t.Logf("in force on three gateways %v after it was put", c.await(version)) // 2 s are promised
	}
	var asked atomic.Int64
	var most sync.Map // versions that were seen
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for g := range c.gateways {
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					seen := c.versions(g)
					if len(seen) != 1 {
						t.Errorf("a request was evaluated by %v", seen)
					}
					for version, n := range seen {
						if n != 3 {
							t.Errorf("a request was evaluated by %d rules of %s, want 3", n, version)
						}
						most.Store(version, true)
					}
					asked.Add(1)
				}
			})
		}
	}
	begin := time.Now()
	const changes = 300
	for i := range changes {
		c.put(fmt.Sprintf("v%d", i))
	}
	took := time.Since(begin)
	after := c.await(fmt.Sprintf("v%d", changes-1))
	stop()
	wg.Wait()
	versions := 0
	most.Range(func(any, any) bool { versions++; return true })
	t.Logf("%d changes in %v under %d requests, which saw %d versions; the last in force %v after it was put", changes, took.Round(time.Millisecond), asked.Load(), versions, after)
}

// Whatever happens to etcd, the gateways keep the last good document, and get the next one when
// etcd is back.
func TestCentreFaults(t *testing.T) {
	t.Parallel()
	c := startCentred(t, 2)
	reached := func(want bool) {
		t.Helper()
		for i, g := range c.gateways {
			if !testproc.Becomes(func() bool { return g.status(t).Config.Remote.Reached == want }) {
				t.Fatalf("gateway %d: %+v", i, g.status(t).Config.Remote)
			}
		}
	}
	c.put("one")
	c.await("one")
	for i, fault := range []struct {
		name       string
		harm, heal func()
	}{
		{"killed", c.etcd.Kill, c.etcd.Restart},
		{"frozen", c.etcd.Freeze, c.etcd.Thaw},
	} {
		fault.harm()
		reached(false)
		for g := range c.gateways {
			if seen := c.versions(g); len(seen) != 1 || seen["local"] > 0 {
				t.Errorf("%s: evaluated by %v", fault.name, seen)
			}
		}
		fault.heal()
		healed := time.Now()
		reached(true)
		t.Logf("%s: reached again %v after it was back", fault.name, time.Since(healed).Round(time.Millisecond)) // 10 s are promised
		version := fmt.Sprintf("after%d", i)
		c.put(version)
		c.await(version)
	}
	c.etcd.Wipe() // it answers, and has nothing
	c.await("local")
	c.put("last")
	c.await("last")
}
