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
