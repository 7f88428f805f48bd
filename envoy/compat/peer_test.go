// SPDX-License-Identifier: MIT

package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/testproc"
)

// The revision of envoyproxy/ratelimit that Diana is compared with. Package bench measures the same.
const (
	peerModule   = "github.com/envoyproxy/ratelimit"
	peerRevision = "v1.4.1-0.20260122083618-3fb702589d36"
)

// peer is envoyproxy/ratelimit.
type peer struct {
	source         string // the folder of its module
	service, check string // programs
}

// buildPeer builds the programs of envoyproxy/ratelimit. Go keeps what it has downloaded and built.
func buildPeer(t testing.TB) *peer {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return out
	}
	run("install", peerModule+"/src/service_cmd@"+peerRevision, peerModule+"/src/config_check_cmd@"+peerRevision)
	var module struct{ Dir string }
	if err := json.Unmarshal(run("mod", "download", "-json", peerModule+"@"+peerRevision), &module); err != nil {
		t.Fatal(err)
	}
	return &peer{module.Dir, filepath.Join(dir, "service_cmd"), filepath.Join(dir, "config_check_cmd")}
}

// startByEnvironment starts a program that takes the environment of envoyproxy/ratelimit: with the files of a folder that
// is called config, and with more variables, such as "SHADOW_MODE=true".
func startByEnvironment(t testing.TB, redis, folder string, variables []string, program ...string) *server {
	t.Helper()
	port := func() string { return fmt.Sprint(testproc.FreePort(t)) }
	const host = "127.0.0.1"
	own := port()
	s := &server{log: filepath.Join(t.TempDir(), "log"), addr: host + ":" + own, json: host + ":" + port(), metrics: host + ":" + port()}
	above := filepath.Dir(folder)
	s.start(t, "env", slices.Concat([]string{
		"HOST=" + host, "PORT=" + s.json[len(host)+1:], "GRPC_HOST=" + host, "GRPC_PORT=" + own,
		"DEBUG_HOST=" + host, "DEBUG_PORT=" + port(), "LOG_LEVEL=error",
		"USE_STATSD=false", "RESPONSE_DYNAMIC_METADATA=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + s.metrics, "STATS_FLUSH_INTERVAL=100ms",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
		"RUNTIME_ROOT=" + filepath.Dir(above), "RUNTIME_SUBDIRECTORY=" + filepath.Base(above),
		"RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
	}, variables, program)...)
	s.connect(t)
	err := testproc.Poll(2*time.Minute, func() error {
		_, err := s.client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "no"})
		if c := status.Code(err); c == codes.Unknown || c == codes.InvalidArgument { // it has no descriptors
			return nil
		}
		return fmt.Errorf("%w\n%s", err, s.logged())
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accepts reports whether a program accepts a file of limits.
func accepts(t testing.TB, name string, args ...string) bool {
	t.Helper()
	err := exec.Command(name, args...).Run()
	if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // Run does not wrap it
		t.Fatal(err)
	}
	return err == nil
}
