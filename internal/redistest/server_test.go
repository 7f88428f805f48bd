// SPDX-License-Identifier: MIT

package redistest_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "5mb")
	if got := s.Must("SET", "greeting", "hello\r\nthere"); got != "OK" {
		t.Errorf("SET: %#v", got)
	}
	if got := s.Must("EVAL", "return {1, 'two', false, {redis.call('GET', KEYS[1])}}", "1", "greeting"); !reflect.DeepEqual(got,
		[]any{int64(1), "two", nil, []any{"hello\r\nthere"}}) {
		t.Errorf("EVAL: %#v", got)
	}
	if got := s.Must("CONFIG", "GET", "maxmemory"); !reflect.DeepEqual(got, []any{"maxmemory", "5242880"}) {
		t.Errorf("CONFIG GET: %#v", got)
	}
	_, err := s.Do("EVALSHA", strings.Repeat("0", 40), "0")
	if e := redistest.Error(""); !errors.As(err, &e) || !strings.HasPrefix(string(e), "NOSCRIPT ") {
		t.Errorf("EVALSHA: %v", err)
	}
	if got := s.Calls(); got["set"] != 1 || got["get"] != 1 || got["eval"] != 1 || got["evalsha"] != 1 {
		t.Errorf("calls: %v", got)
	}
	if got := s.Info("replication")["role"]; got != "master" {
		t.Errorf("role: %q", got)
	}
	if got, want := s.URL(), "redis://"+s.Addr(); got != want {
		t.Errorf("URL: %q, want %q", got, want)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	addr, pid := s.Addr(), s.PID()
	s.Must("SET", "key", "value")
	s.Kill()
	s.Kill()
	if got := s.PID(); got != 0 {
		t.Errorf("a killed server has the process %d", got)
	}
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed server: %v", err)
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid || s.PID() == 0 {
		t.Errorf("restarted as %d at %s, was %d at %s", s.PID(), s.Addr(), pid, addr)
	}
	s.Must("SET", "other", "value")
	s.Restart()
	if got := s.Must("DBSIZE"); got != int64(0) {
		t.Errorf("%v keys", got)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Freeze()
	conn := dial(t, s.Addr())
	answer := send(t, conn, "INCR n\r\n")
	wantSilence(t, answer)
	s.Thaw()
	want(t, answer, ":1\r\n")
	s.Freeze()
	answer = send(t, conn, "INCR n\r\n")
	s.Kill() // a frozen one dies as well
	want(t, answer, "")
	s.Restart()
	s.Must("PING")
}

func TestPassword(t *testing.T) {
	t.Parallel()
	const secret = `p"a\ss`
	for _, tc := range []struct {
		user string
		as   string // of which URL
	}{
		{"", `redis://:p%22a%5Css@`},
		{"me", `redis://me:p%22a%5Css@`},
	} {
		s := redistest.Options{Username: tc.user, Password: secret}.Start(t)
		s.Must("SET", "key", "value")
		if got, want := s.URL(), tc.as+s.Addr(); got != want {
			t.Errorf("URL %q, want %q", got, want)
		}
		conn := dial(t, s.Addr())
		if got := receive(t, send(t, conn, "GET key\r\n")); !strings.HasPrefix(got, "-NOAUTH ") {
			t.Errorf("without a password: %q", got)
		}
		if got := receive(t, send(t, conn, "AUTH default wrong\r\n")); !strings.HasPrefix(got, "-WRONGPASS ") {
			t.Errorf("with a wrong password: %q", got)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Options{TLS: true, Username: "me", Password: "secret"}.Start(t)
	s.Must("PING")
	if got, want := s.URL(), "rediss://me:secret@"+s.Addr(); got != want {
		t.Errorf("URL %q, want %q", got, want)
	}
	if text, err := os.ReadFile(s.CAFile()); err != nil || !strings.Contains(string(text), "BEGIN CERTIFICATE") {
		t.Errorf("%q, %v", text, err)
	}
	other := redistest.Options{TLS: true}.Start(t)
	for _, tc := range []struct {
		name   string
		config *tls.Config
		ok     bool
	}{
		{"its authority", s.TLSConfig(), true},
		{"the system's", nil, false},
		{"another", other.TLSConfig(), false},
	} {
		conn, err := tls.Dial("tcp", s.Addr(), tc.config)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	s.Restart()
	s.Must("PING")
}

// Servers that are down keep their ports from new ones, and many start at once.
func TestManyServers(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			var servers []*redistest.Server
			for range 4 {
				s := redistest.Start(t)
				s.Kill()
				servers = append(servers, s)
			}
			for _, s := range servers {
				s.Restart()
			}
		})
	}
}

// A server ends with the program that has started it, however that ends.
func TestDiesWithProgram(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if os.Getenv("REDISTEST_DIES") != "" {
		s.Freeze() // not even this delays it
		t.Log("at", s.Addr())
		if self, err := os.FindProcess(os.Getpid()); err != nil || self.Kill() != nil {
			t.Fatal("it lives on")
		}
		select {}
	}
	out, err := again(t, "REDISTEST_DIES=1")
	_, addr, ok := strings.Cut(out, ": at ")
	if err == nil || !ok {
		t.Fatalf("%v\n%s", err, out)
	}
	addr = strings.TrimSpace(addr)
	testproc.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// Without Redis a test is skipped, but not in CI.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_NONE") != "" {
		redistest.Start(t)
		t.Log("it has started")
		return
	}
	for _, tc := range []struct{ ci, want string }{
		{"", "--- SKIP: TestNoRedis"},
		{"true", "--- FAIL: TestNoRedis"},
	} {
		out, _ := again(t, "REDISTEST_NONE=1", "REDIS_SERVER=no-such-redis", "CI="+tc.ci)
		if !strings.Contains(out, tc.want) || !strings.Contains(out, "no-such-redis") {
			t.Errorf("CI=%s: want %q:\n%s", tc.ci, tc.want, out)
		}
	}
}

// again runs the test once more, in a program of its own.
func again(t *testing.T, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), append(env, "TMPDIR="+t.TempDir())...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send sends a line, and returns a channel for the one that answers it.
func send(t *testing.T, conn net.Conn, text string) <-chan string {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 2)
	go func() {
		defer close(lines)
		line, _ := bufio.NewReader(conn).ReadString('\n')
		lines <- line
	}()
	return lines
}

func receive(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(testproc.Patience):
		t.Fatal("no answer")
		return ""
	}
}

func want(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	if got := receive(t, lines); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}

// wantSilence fails the test if an answer arrives. It waits many times as long as an answer takes.
func wantSilence(t *testing.T, lines <-chan string) {
	t.Helper()
	select {
	case line := <-lines:
		t.Errorf("answer %q, want none", line)
	case <-time.After(50 * time.Millisecond):
	}
}
