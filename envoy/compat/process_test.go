// SPDX-License-Identifier: MIT

package compat

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/diana-limiter/diana/internal/testproc"
)

var (
	all     = flag.Bool("all", false, "also compare Diana with envoyproxy/ratelimit, which takes minutes")
	calls   = flag.Int("calls", 200_000, "how many requests TestDifferential compares")
	seed    = flag.Uint64("seed", 0, "seed of TestDifferential; 0: a new one")
	program = flag.String("diana", "", "the program to test; by default the tests build it")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
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
	build := exec.Command("go", "build", "-o", *program, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "diana")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if build.Run() != nil {
		return 1
	}
	return m.Run()
}

// server is a process that serves the rate limit service.
type server struct {
	*testproc.Process
	addr          string // host:port of gRPC
	json, metrics string // the same of POST /json and of Prometheus; of a server by environment
	client        rls.RateLimitServiceClient
	log           string
}

var grpcAddress = regexp.MustCompile(`(?m)^diana: grpc on (\S+)$`)

// startDiana starts diana serve with the limits of a file or directory. way is the value of redis in
// its configuration.
func startDiana(t testing.TB, way, descriptors string, flags ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{log: filepath.Join(dir, "log")}
	file := write(t, filepath.Join(dir, "diana.yaml"), "redis: {"+way+"}\nlimits: []\n")
	args := append([]string{"serve", "--config", file, "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--descriptors", descriptors}, flags...)
	s.start(t, *program, args...)
	err := testproc.Poll(testproc.Patience, func() error {
		found := grpcAddress.FindStringSubmatch(s.logged())
		if found == nil {
			return fmt.Errorf("no address:\n%s", s.logged())
		}
		s.addr = found[1]
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.connect(t)
	return s
}

// start starts a program that ends with the test.
func (s *server) start(t testing.TB, name string, args ...string) {
	t.Helper()
	p, err := testproc.Start(s.log, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	s.Process = p
	t.Cleanup(func() {
		_ = p.Kill()
		if text := s.logged(); t.Failed() {
			t.Logf("the end of the log of %s at %s:\n%s", filepath.Base(name), s.addr, text[max(0, len(text)-3000):])
		}
	})
}

func (s *server) connect(t testing.TB) {
	t.Helper()
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client = rls.NewRateLimitServiceClient(conn)
}

func (s *server) logged() string {
	text, _ := os.ReadFile(s.log) // without a file nothing is logged
	return string(text)
}

// write writes a file and returns its name.
func write(t testing.TB, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// list returns the elements as YAML.
func list(elements []string) string { return "[" + strings.Join(elements, ", ") + "]" }
