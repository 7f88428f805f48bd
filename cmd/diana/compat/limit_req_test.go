// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// slower makes the rates of the page so low that the time a test takes adds no request to a burst. The
// longest request then waits for six seconds.
var slower = []string{
	"rate=10r/s", "rate=30r/m",
	"unit: second, rpu: 10", "unit: minute, rpu: 30",
	"wait: 200ms", "wait: 4s",
}

// TestLimitReq: the limits of nginx and those of Diana on the page from-nginx.md allow as many requests of
// a burst.
func TestLimitReq(t *testing.T) {
	text := replaced(t, page(t, "from-nginx.md"), slower...)
	yaml := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(text)[1]
	up := newHolding(t)
	host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	config := replaced(t, filesOf(t, "from-nginx.md", slower)["/etc/nginx/conf.d/limits.conf"],
		"listen 80;", "listen "+host+";", "127.0.0.1:3000", up.Listener.Addr().String())
	start(t, []upstream{{"nginx", host}}, recipes[0].command(), nginxArgs(t, t.TempDir(), config)...)
	diana := gateway(t, "http://"+up.Listener.Addr().String(), yaml)

	const burst = 12
	var compared sync.WaitGroup
	for path, want := range map[string]int{"/strict": 1, "/burst": 5, "/spaced": 4, "/mixed": 6, "/downloads": 2} {
		for name, host := range map[string]string{"nginx": host, "Diana": diana} {
			compared.Go(func() {
				if got := up.burst(t, host, path, burst); got != want {
					t.Errorf("%s allows %d of %d requests for %s, want %d", name, got, burst, path, want)
				}
			})
		}
	}
	compared.Wait()
}

// TestLimitReqDiffers: nginx behaves as the page from-nginx.md says where Diana differs, and Diana does too.
// Each row sends some requests after those of the rows before, one at a time.
func TestLimitReqDiffers(t *testing.T) {
	up := newHolding(t)
	nginx := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
	config := replaced(t, differing, "LISTEN", nginx, "UPSTREAM", up.Listener.Addr().String())
	start(t, []upstream{{"nginx", nginx}}, recipes[0].command(), nginxArgs(t, t.TempDir(), config)...)
	diana := gateway(t, "http://"+up.Listener.Addr().String(), differingRules)
	for _, row := range []struct {
		path         string
		nginx, diana int // requests of five that pass
	}{
		{"/account", 5, 1},        // the field is missing
		{"/outer/first", 1, 1},    // one zone, and one rule on the path above
		{"/outer/second", 0, 0},   // the zone counts both locations
		{"/level/x", 5, 1},        // the location replaces the limit of the server; all entries apply
		{"/several/both", 1, 1},   // the second limit refuses
		{"/several/either", 4, 4}, // and then the first charges nothing
		{"/return", 5, 0},         // nginx answers before it limits
	} {
		for host, want := range map[string]int{nginx: row.nginx, diana: row.diana} {
			passed := 0
			for range 5 {
				res, err := http.Get("http://" + host + row.path)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if res.StatusCode == http.StatusOK {
					passed++
				} else if wait := res.Header.Get("Retry-After"); host == nginx && wait != "" {
					t.Errorf("nginx sends Retry-After: %s", wait)
				}
			}
			if passed != want {
				t.Errorf("%s%s: %d of 5 requests pass, want %d", host, row.path, passed, want)
			}
		}
	}
}

const differing = `
limit_req_zone $http_x_account_id  zone=account:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=outer:1m   rate=1r/m;
limit_req_zone $binary_remote_addr zone=inner:1m   rate=1r/m;
limit_req_zone $binary_remote_addr zone=first:1m   rate=1r/m;
limit_req_zone $binary_remote_addr zone=second:1m  rate=1r/m;
server {
	listen LISTEN;
	limit_req zone=outer;
	location /account        { limit_req zone=account;              proxy_pass http://UPSTREAM; }
	location /outer/first    { proxy_pass http://UPSTREAM; }
	location /outer/second   { proxy_pass http://UPSTREAM; }
	location /level          { limit_req zone=inner burst=4 nodelay; proxy_pass http://UPSTREAM; }
	location /several/both   { limit_req zone=first burst=4 nodelay; limit_req zone=second; proxy_pass http://UPSTREAM; }
	location /several/either { limit_req zone=first burst=4 nodelay; proxy_pass http://UPSTREAM; }
	location /return         { limit_req zone=second;                return 200; }
	location /admin          { limit_req zone=account;               return 200; } # asked at the start
}
`

const differingRules = `
limits:
- {url: /account, rules: [{actor: "header:X-Account-Id", unit: hour, rpu: 1}]}
- {url: /outer, rules: [{actor: ip, unit: hour, rpu: 1}]}
- {url: /level, rules: [{actor: ip, unit: hour, rpu: 1}]}
- {url: /level/x, rules: [{actor: ip, unit: hour, rpu: 5}]}
- {url: /several, rules: [{actor: ip, unit: hour, rpu: 5}]}
- {url: /several/both, rules: [{actor: ip, unit: hour, rpu: 1}]}
- {url: /return, rules: [{actor: ip, rpu: 0}]}
`

// holding is an upstream that answers requests below /downloads only when release is called.
type holding struct {
	*httptest.Server
	mu    sync.Mutex
	holds map[string]chan struct{} // by the host that the client has asked
}

func newHolding(t *testing.T) *holding {
	t.Helper()
	h := &holding{holds: map[string]chan struct{}{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/downloads" {
			<-h.hold(r.Header.Get("Asked"))
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// hold returns a channel that is closed when the requests to a host are to be answered.
func (h *holding) hold(host string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds[host] == nil {
		h.holds[host] = make(chan struct{})
	}
	return h.holds[host]
}

// burst sends requests at the same time and returns how many are allowed. The upstream holds downloads
// until all others are refused.
func (h *holding) burst(t *testing.T, host, path string, requests int) int {
	t.Helper()
	var allowed, refused atomic.Int64
	var sent sync.WaitGroup
	for range requests {
		sent.Go(func() {
			r, err := http.NewRequest("GET", "http://"+host+path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Asked", host)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			switch res.StatusCode {
			case http.StatusOK:
				allowed.Add(1)
			case http.StatusTooManyRequests:
				if refused.Add(1) == int64(requests-2) && path == "/downloads" {
					close(h.hold(host))
				}
			default:
				t.Errorf("%s%s gets %d", host, path, res.StatusCode)
			}
		})
	}
	sent.Wait()
	return int(allowed.Load())
}
