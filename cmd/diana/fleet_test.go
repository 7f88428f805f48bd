// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/testproc"
)

// served is a diana serve in its own process, which ends with the test.
type served struct {
	url, admin string   // empty until the gateway has printed them
	file       string   // of the configuration
	env        []string // added to that of the test
	inside     string   // the file that takes processes into a control group; "": none
	cmd        *exec.Cmd
	stdout     testproc.Buffer
	log        journal
}

// serve starts a gateway and waits until it has printed its addresses.
func serve(t *testing.T, yaml, upstream string, flags ...string) *served {
	t.Helper()
	s := launch(t, yaml, upstream, flags...)
	if !testproc.Becomes(s.listens) {
		t.Fatalf("no addresses: %q", s.stdout.String())
	}
	return s
}

// launch starts a gateway and does not wait for its addresses.
func launch(t *testing.T, yaml, upstream string, flags ...string) *served {
	t.Helper()
	s := &served{file: filepath.Join(t.TempDir(), "diana.yaml")}
	if err := os.WriteFile(s.file, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	s.begin(t, append([]string{"--upstream", upstream, "--listen", "127.0.0.1:0"}, flags...)...)
	return s
}

// begin starts a gateway with the file of s. It does not wait for its addresses.
func (s *served) begin(t *testing.T, flags ...string) {
	t.Helper()
	s.cmd = exec.Command("diana", append([]string{"serve", "--debug", "--config", s.file, "--admin", "127.0.0.1:0"}, flags...)...)
	if s.inside != "" {
		join := append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, s.inside}, s.cmd.Args...)
		s.cmd = exec.Command(join[0], join[1:]...)
	}
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Logf("the log of the gateway at %s, without requests:\n%s", s.url, s.log.String())
		}
	})
}

// lines waits until the gateway has printed n lines, and returns them.
func (s *served) lines(t *testing.T, n int) []string {
	t.Helper()
	if !testproc.Becomes(func() bool { return strings.Count(s.stdout.String(), "\n") >= n }) {
		t.Fatalf("fewer than %d lines: %q", n, s.stdout.String())
	}
	return strings.Split(strings.TrimSpace(s.stdout.String()), "\n")
}

// listens reports whether the gateway has printed its addresses.
func (s *served) listens() bool {
	found := addresses.FindStringSubmatch(s.stdout.String())
	if found == nil {
		return false
	}
	s.url, s.admin = found[1], found[2]
	return true
}

// stop sends SIGTERM and waits until the process has ended.
func (s *served) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait()); err != nil {
		t.Fatalf("the gateway at %s did not stop: %v", s.url, err)
	}
}

// reload replaces the configuration file and waits until the new one is active.
func (s *served) reload(t *testing.T, yaml string) {
	t.Helper()
	reloads := func() int { return strings.Count(s.log.String(), `msg="configuration changed"`) }
	before := reloads()
	if err := errors.Join(os.WriteFile(s.file+".new", []byte(yaml), 0o644), os.Rename(s.file+".new", s.file)); err != nil {
		t.Fatal(err)
	}
	if !testproc.Becomes(func() bool { return reloads() > before }) {
		t.Fatalf("the gateway at %s did not reload", s.url)
	}
}

// journal keeps the lines of a gateway's log, except those of single requests.
type journal struct {
	testproc.Buffer
	part []byte // of a line that has not ended
}

// Write adds lines. Only one goroutine may call it.
func (j *journal) Write(p []byte) (int, error) {
	j.part = append(j.part, p...)
	for {
		end := bytes.IndexByte(j.part, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		if line := j.part[:end]; !bytes.Contains(line, []byte(" msg=request ")) {
			_, _ = j.Buffer.Write(line)
		}
		j.part = j.part[end:]
	}
}

// change is a switch between Redis and the fallback. The gateway logs it shortly after it has given
// Redis up, and shortly before it uses Redis again.
type change struct {
	at       time.Time
	up       bool
	gateways int // that are alive, as far as this one knows
}

var changeLine = regexp.MustCompile(`(?m)^time=(\S+) level=\w+ msg="(global limits are counted in Redis|Redis is out of reach: on_error decides)" gateways=(\d+)`)

func (s *served) changes(t *testing.T) (all []change) {
	t.Helper()
	for _, m := range changeLine.FindAllStringSubmatch(s.log.String(), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		gateways, _ := strconv.Atoi(m[3])
		all = append(all, change{at, strings.HasPrefix(m[2], "global"), gateways})
	}
	return all
}

// tell returns the answer of the administrators' listener.
func (s *served) tell(t *testing.T, path string) []byte {
	t.Helper()
	r, err := http.Get(s.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(path, r.Status, err)
	}
	return body
}

func (s *served) status(t *testing.T) (status diana.Status) {
	t.Helper()
	if err := json.Unmarshal(s.tell(t, "/status"), &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// metric returns the value of a metric without labels.
func (s *served) metric(t *testing.T, name string) float64 {
	t.Helper()
	v, err := metricIn(s.tell(t, "/metrics"), name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// metricIn returns the value of a metric without labels in the text of /metrics.
func metricIn(page []byte, name string) (float64, error) {
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// fleet is a set of gateways that count together, in front of one upstream.
type fleet struct {
	gateways []*served
	client   *http.Client
	upstream *httptest.Server
	arrived  atomic.Int64 // requests at the upstream
}

// startFleet starts one gateway for each of ways, the values of redis in their configurations, and
// waits until they know of each other. clients is the number of connections to each gateway.
func startFleet(t *testing.T, ways []string, clients int, limits string) *fleet {
	t.Helper()
	return startFleetFor(t, func(http.ResponseWriter, *http.Request) {}, ways, clients, limits)
}

// startFleetFor is startFleet with the handler of the upstream.
func startFleetFor(t *testing.T, handle http.HandlerFunc, ways []string, clients int, limits string) *fleet {
	t.Helper()
	f := &fleet{}
	f.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.arrived.Add(1)
		w.Header().Set("Arrived", strconv.FormatInt(time.Now().UnixNano(), 10))
		handle(w, r)
	}))
	t.Cleanup(f.upstream.Close)
	for _, way := range ways {
		f.gateways = append(f.gateways, serve(t, fleetYAML(way, limits), f.upstream.URL))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
	for i, g := range f.gateways {
		if !testproc.Becomes(func() bool { s := g.status(t); return !s.Degraded && s.Gateways == len(ways) }) {
			t.Fatalf("gateway %d does not know Redis or the others: %+v", i, g.status(t))
		}
	}
	return f
}

// fleetYAML returns the configuration of a gateway.
func fleetYAML(way, limits string) string {
	return fmt.Sprintf("redis: {%s}\nlimits:\n%s", way, limits)
}

// ask sends one request. The answer must have one of the two statuses; 0 means no answer. Any
// goroutine may call it.
func (f *fleet) ask(t *testing.T, gateway int, path string) seen {
	s := seen{sent: time.Now()}
	r, err := f.client.Get(f.gateways[gateway].url + path)
	if err != nil {
		t.Errorf("gateway %d: %v", gateway, err)
		s.answered = time.Now()
		return s
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	s.answered, s.status = time.Now(), r.StatusCode
	if at, err := strconv.ParseInt(r.Header.Get("Arrived"), 10, 64); err == nil {
		s.arrived = time.Unix(0, at)
	}
	if s.status != http.StatusOK && s.status != http.StatusServiceUnavailable {
		t.Errorf("gateway %d, %s: status %d", gateway, path, s.status)
	}
	return s
}

// flood sends requests from all clients to each of the first gateways, each client one after
// another and for the next of paths, as long as more returns true. It returns the answers by path.
func (f *fleet) flood(t *testing.T, gateways, clients int, paths []string, more func(i int) bool) map[string][]seen {
	t.Helper()
	all := map[string][]seen{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range gateways {
		for c := range clients {
			wg.Go(func() {
				own := make([][]seen, len(paths))
				for i := 0; more(i); i++ {
					p := (c + i) % len(paths)
					s := f.ask(t, g, paths[p])
					if s.status == 0 {
						return // one failure of each client tells enough
					}
					own[p] = append(own[p], s)
				}
				mu.Lock()
				defer mu.Unlock()
				for p, path := range paths {
					all[path] = append(all[path], own[p]...)
				}
			})
		}
	}
	wg.Wait()
	return all
}

// count returns how many of the requests were certainly decided within [from, to), and how many may
// have been. A decision is between sent and answered, but the test cannot know where.
func count(all []seen, from, to time.Time) (surely, perhaps int) {
	for _, s := range all {
		if s.sent.Before(to) && !s.answered.Before(from) {
			perhaps++
			if !s.sent.Before(from) && s.answered.Before(to) {
				surely++
			}
		}
	}
	return surely, perhaps
}

func refused(all []seen) (no []seen) {
	for _, s := range all {
		if s.status == http.StatusServiceUnavailable {
			no = append(no, s)
		}
	}
	return no
}
