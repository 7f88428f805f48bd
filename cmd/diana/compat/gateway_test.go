// SPDX-License-Identifier: MIT

package compat

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

var program = flag.String("diana", "", "test this program instead of building it")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) (status int) {
	if *program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "compat")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	*program = filepath.Join(dir, "diana")
	build := exec.Command("go", "build", "-o", *program, "..")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if build.Run() != nil {
		return 1
	}
	return m.Run()
}

// gateway starts diana serve in front of an upstream, and returns its address.
func gateway(t testing.TB, upstream, yaml string) string {
	t.Helper()
	_, host := startGateway(t, *program, upstream, yaml)
	return host
}

// startGateway is gateway for a version of the program.
func startGateway(t testing.TB, version, upstream, yaml string, flags ...string) (p *testproc.Process, host string) {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "diana.yaml"), filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"serve", "--config", file, "--upstream", upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)
	p, err := testproc.Start(log, version, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	err = testproc.Poll(testproc.Patience, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if found := address.FindSubmatch(text); found != nil {
			host = string(found[1])
			return nil
		}
		return fmt.Errorf("diana serve has printed no address, but:\n%s", text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, host
}

var address = regexp.MustCompile(`diana: serving on http://(\S+)`)

// startup is how long a server may take to start. Tomcat needs seconds on an idle machine.
const startup = time.Minute

// start starts a program that runs all of the servers, and waits until they answer.
func start(t testing.TB, servers []upstream, name string, args ...string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := testproc.Start(log, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	for _, s := range servers {
		err := testproc.Poll(startup, func() error {
			w := wire{host: s.host}
			defer w.close()
			status, _, err := w.ask("GET /admin HTTP/1.1\r\nHost: h\r\n\r\n")
			if err == nil && status == 0 {
				err = errors.New("no answer")
			}
			return err
		})
		if err != nil {
			text, _ := os.ReadFile(log)
			t.Fatalf("%s does not start: %v\n%s", s.name, err, text)
		}
	}
}
