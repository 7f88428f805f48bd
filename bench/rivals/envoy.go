// SPDX-License-Identifier: MIT

package rivals

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/internal/redistest"
)

// The server of Envoy's rate limit service, at the revision that the figures are of.
const (
	Envoy         = "envoyproxy/ratelimit"
	EnvoyDomain   = "bench"
	envoyProgram  = "github.com/envoyproxy/ratelimit/src/service_cmd"
	envoyRevision = "v1.4.1-0.20260122083618-3fb702589d36"
)

// RateLimitService is a program that can be built, and its configuration.
type RateLimitService struct {
	program  string // "" if it cannot be built
	folder   string
	editions int
}

// BuildEnvoy builds the server. It downloads what it needs once. A quick run does without.
func BuildEnvoy(ctx context.Context, r *measure.Run, y *measure.Yard) *RateLimitService {
	s := &RateLimitService{folder: filepath.Join(y.Dir, "envoy", "limits")}
	if r.Quick {
		return s
	}
	r.Note("  building %s", Envoy)
	cmd := exec.CommandContext(ctx, "go", "install", envoyProgram+"@"+envoyRevision)
	cmd.Dir = y.Dir
	cmd.Env = append(os.Environ(), "GOBIN="+y.Dir, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Note("  %s cannot be built: %v: %s", Envoy, err, bytes.TrimSpace(out))
		return s
	}
	s.program = filepath.Join(y.Dir, filepath.Base(envoyProgram))
	return s
}

// Built reports whether there is a program.
func (s *RateLimitService) Built() bool { return s.program != "" }

// Config is the folder of its limits.
func (s *RateLimitService) Config() string { return filepath.Join(s.folder, "config") }

// Limit replaces the limits at once. Descriptors are such as "{key: x, rate_limit: {unit: hour,
// requests_per_unit: 1}}". One limit that nobody uses makes each edition differ.
func (s *RateLimitService) Limit(descriptors ...string) error {
	s.editions++
	descriptors = append(descriptors, fmt.Sprintf("{key: unused, rate_limit: {unit: day, requests_per_unit: %d}}", s.editions))
	text := "domain: " + EnvoyDomain + "\ndescriptors:\n- " + strings.Join(descriptors, "\n- ") + "\n"
	if err := os.MkdirAll(s.Config(), 0o700); err != nil {
		return err
	}
	file := filepath.Join(s.folder, "next.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(s.Config(), "bench.yaml"))
}

// Command starts the server, which serves POST /json at one address and gRPC at another.
func (s *RateLimitService) Command(redis *redistest.Server, grpc string) measure.Command {
	return func(_ *measure.Yard, address string) ([]string, error) {
		host, port, _ := strings.Cut(address, ":")
		_, grpcPort, _ := strings.Cut(grpc, ":")
		return []string{
			"env", "HOST=" + host, "PORT=" + port, "GRPC_HOST=" + host, "GRPC_PORT=" + grpcPort,
			"DEBUG_HOST=" + host, "DEBUG_PORT=0", "LOG_LEVEL=error",
			"USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + host + ":0",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
			"RUNTIME_ROOT=" + filepath.Dir(s.folder), "RUNTIME_SUBDIRECTORY=" + filepath.Base(s.folder),
			"RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
			s.program,
		}, nil
	}
}
