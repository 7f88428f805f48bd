// SPDX-License-Identifier: MIT

package source_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/sourcetest"
)

// The real Consul passes the tests of sourcetest, where it is installed. It is not in Debian,
// and its licence lets us run it but not ship it; elsewhere only the fake is tested.
func TestConsulItself(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("consul")
	if err != nil {
		t.Skip("SKIPPED: there is no consul on PATH, so only the fake of it was tested")
	}
	sourcetest.Run(t, func(t *testing.T) sourcetest.Centre {
		c := &consulProcess{t: t, binary: binary, dir: t.TempDir()}
		t.Cleanup(c.stop)
		t.Cleanup(c.client.CloseIdleConnections)
		c.start()
		return sourcetest.Centre{
			Kind: source.Consul(),
			Options: source.Options{
				URL:   parseURL(t, fmt.Sprintf("consul://127.0.0.1:%d/diana/limits%%20of%%20all", c.ports[0])),
				Token: token(consulToken),
			},
			Put:    func(text []byte) { must(t, c.ask(http.MethodPut, "diana/limits%20of%20all", text)) },
			Delete: func() { must(t, c.ask(http.MethodDelete, "diana/limits%20of%20all", nil)) },
			Stop:   c.stop,
			Start:  c.start,
			Wipe: func() {
				c.stop()
				must(t, os.RemoveAll(filepath.Join(c.dir, "data")))
				c.start()
			},
		}
	})
}

const consulToken = "5b5f3c2e-7d1a-4a37-9a55-0123456789ab"

// consulProcess is a single Consul server.
type consulProcess struct {
	t       *testing.T
	binary  string
	dir     string
	ports   [3]int // HTTP first
	client  http.Client
	process *exec.Cmd // nil: stopped
}

// start returns when a key can be written. The first call chooses the ports.
func (c *consulProcess) start() {
	c.t.Helper()
	first := c.ports[0] == 0
	for range 5 {
		if first {
			c.choosePorts()
		}
		if c.run() {
			return
		}
		c.stop()
	}
	said, _ := os.ReadFile(filepath.Join(c.dir, "log"))
	c.t.Fatalf("consul does not start:\n%s", said)
}

func (c *consulProcess) run() bool {
	c.t.Helper()
	said, err := os.Create(filepath.Join(c.dir, "log"))
	must(c.t, err)
	defer said.Close()
	c.process = exec.Command(c.binary, "agent", "-server", "-bootstrap-expect", "1",
		"-data-dir", filepath.Join(c.dir, "data"), "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", strconv.Itoa(c.ports[0]), "-server-port", strconv.Itoa(c.ports[1]),
		"-serf-lan-port", strconv.Itoa(c.ports[2]), "-serf-wan-port", "-1", "-dns-port", "-1",
		"-grpc-port", "-1", "-grpc-tls-port", "-1", "-disable-host-node-id", "-log-level", "error",
		"-hcl", "disable_update_check = true", "-hcl", "performance { raft_multiplier = 1 }",
		"-hcl", "limits { kv_max_value_size = 8000000 }",
		"-hcl", `acl { enabled = true default_policy = "deny" tokens { initial_management = "`+consulToken+`" } }`)
	c.process.Stdout, c.process.Stderr = said, said
	must(c.t, c.process.Start())
	return testproc.Poll(testproc.Patience, func() error { return c.ask(http.MethodPut, "ready", nil) }) == nil
}

func (c *consulProcess) stop() {
	if c.process != nil {
		_ = c.process.Process.Kill() // it may have ended
		_ = c.process.Wait()         // its error is that it was killed
		c.process = nil
	}
}

func (c *consulProcess) choosePorts() {
	c.t.Helper()
	for i := range c.ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(c.t, err)
		defer l.Close() // when all are chosen, so that the ports differ
		c.ports[i] = l.Addr().(*net.TCPAddr).Port
	}
}

// ask changes the key over HTTP.
func (c *consulProcess) ask(method, key string, text []byte) error {
	r, err := http.NewRequestWithContext(c.t.Context(), method,
		fmt.Sprintf("http://127.0.0.1:%d/v1/kv/%s", c.ports[0], key), bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("X-Consul-Token", consulToken)
	reply, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", method, key, reply.Status)
	}
	return nil
}
