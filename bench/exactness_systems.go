// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The names of the systems. A system without Redis is one server, and one with Redis is three.
const (
	dianaLocalTB  = "Diana, local TB"
	dianaGlobalTB = "Diana, global TB"
	dianaGlobalSL = "Diana, global SL"
	ululeExact    = "ulule"
	httprateExact = "httprate"
	nginxExact    = "nginx limit_req"
	envoyExact    = "envoyproxy/ratelimit"
)

// exactSystem is a system and what it promises.
type exactSystem struct {
	name    string
	kind    kind
	redis   bool // the processes share counters in Redis
	quick   bool // belongs to a quick run
	promise promise
	reload  func(y *exactYard, s *exactSystem) error // nil if the system has no configuration to reload

	start   func(y *exactYard, s *exactSystem) error // sets processes, and phase if windows have one
	request requester
	probe   func(ctx context.Context, address string) (*http.Request, error)

	processes []*httpServer
	phase     int64 // see history
}

// exactSystems lists the systems in the order of the page.
func exactSystems() []*exactSystem {
	const tokens = "docs/algorithms.md"
	return []*exactSystem{
		librarySystem(dianaLocalTB, diana, false, bucketPromise(tokens+", token bucket"), reloadDiana),
		librarySystem(dianaGlobalTB, diana, true, bucketPromise(tokens+", token bucket"), reloadDiana),
		librarySystem(dianaGlobalSL, diana, true, logPromise(tokens+", sliding log"), reloadDiana),
		librarySystem(redisRateName, rival, true, bucketPromise("redis_rate, README and lua.go: GCRA, \"leaky bucket\""), nil),
		librarySystem("throttled", rival, true, bucketPromise("throttled, rate.go: \"generic cell-rate algorithm\", MaxBurst"), nil),
		librarySystem(ululeExact, rival, true, firstWindowPromise("ulule/limiter, drivers/store/redis: INCRBY, and PEXPIRE by the first"), nil),
		{
			name: envoyExact, kind: rival, redis: true, request: jsonRequest, probe: jsonProbe,
			promise: clockWindowPromise("envoyproxy/ratelimit, README: requests_per_unit; src/limiter/cache_key.go: the window's start"),
			start:   startEnvoy, reload: reloadEnvoy,
		},
		librarySystem(httprateExact, rival, false, estimatePromise("go-chi/httprate, README: \"sliding window counter\"; limiter.go: calculateRate"), nil),
		librarySystem("go-limiter", rival, false, firstWindowPromise("go-limiter, memorystore: Tokens in each Interval, from the first request"), nil),
		{
			name: nginxExact, kind: rival, request: plainRequest, probe: plainProbe,
			promise: bucketPromise("nginx, ngx_http_limit_req_module: rate and burst"),
			start:   startNginx, reload: func(_ *exactYard, s *exactSystem) error { return signalTo(s, syscall.SIGHUP) },
		},
	}
}

// librarySystem is a library in servers of this program.
func librarySystem(name string, k kind, redis bool, p promise, reload func(*exactYard, *exactSystem) error) *exactSystem {
	return &exactSystem{
		name: name, kind: k, redis: redis, promise: p, reload: reload, request: plainRequest,
		quick: name == dianaGlobalTB || name == redisRateName,
		probe: func(ctx context.Context, address string) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+probePath, nil)
		},
		start: func(y *exactYard, s *exactSystem) error {
			err := y.startProcesses(s, func(_ *yard, address string) ([]string, error) {
				return []string{y.self, exactCommand, address, name, y.redis.URL()}, nil
			})
			if err != nil {
				return err
			}
			began, err := get("http://" + s.processes[0].address + beganPath)
			if err != nil || redis {
				return err // windows in Redis begin at the day's, or at a request
			}
			s.phase, err = strconv.ParseInt(began, 10, 64)
			return err
		},
	}
}

func reloadDiana(_ *exactYard, s *exactSystem) error {
	for _, p := range s.processes {
		if _, err := get("http://" + p.address + reloadPath); err != nil {
			return err
		}
	}
	return nil
}

// exactYard holds the servers of the systems.
type exactYard struct {
	*yard
	redis *redistest.Server
	envoy string // the program, or "" if it cannot be built
	nginx string // the program, or ""

	editions int // of the configuration of the rate limit service
	keys     int // that were used up
}

// settle makes the folder of the files.
func (y *exactYard) settle() (err error) {
	y.dir = y.TempDir()
	y.self, err = os.Executable()
	return err
}

// startProcesses starts three servers of a system that shares Redis, and one of any other.
func (y *exactYard) startProcesses(s *exactSystem, command commander) error {
	n := 1
	if s.redis {
		n = gateways
	}
	for range n {
		p, err := y.start(command)
		if err != nil {
			return err
		}
		s.processes = append(s.processes, p)
	}
	return nil
}

// stop ends the servers of a system.
func (s *exactSystem) stop() {
	_ = signalTo(s, syscall.SIGTERM) // nginx ends its workers; the others end in any case
	for _, p := range s.processes {
		testproc.Becomes(p.HasEnded)
		_ = p.Kill() // it has ended
	}
	s.processes = nil
}

func signalTo(s *exactSystem, signal os.Signal) error {
	for _, server := range s.processes {
		p, err := os.FindProcess(server.PID)
		if err == nil {
			err = p.Signal(signal)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nginx shares its counters among its workers.
const exactNginxConfig = `
daemon off;
worker_processes 3;
pid DIR/nginx.pid;
error_log /dev/null crit;
events { worker_connections 1024; }
http {
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	access_log off;
	keepalive_requests 1000000000;
	limit_req_status 429;
	limit_req_zone $uri zone=minute:1m rate=1000r/m;
	limit_req_zone $uri zone=second:1m rate=100r/s;
	server {
		listen ADDRESS;
		location /minute/ { limit_req zone=minute burst=999 nodelay; empty_gif; }
		location /second/ { limit_req zone=second burst=99 nodelay; empty_gif; }
	}
}
`

func startNginx(y *exactYard, s *exactSystem) error {
	return y.startProcesses(s, func(yard *yard, address string) ([]string, error) {
		dir := y.TempDir()
		file, err := yard.file("nginx.conf", strings.NewReplacer("DIR", dir, "ADDRESS", address).Replace(exactNginxConfig))
		return []string{y.nginx, "-c", file, "-p", dir}, err
	})
}

func plainProbe(ctx context.Context, address string) (*http.Request, error) {
	return plainRequest(ctx, address, "second", "probe")
}

// The server of Envoy's rate limit service, at the revision that the figures are of.
const (
	envoyProgram  = "github.com/envoyproxy/ratelimit/src/service_cmd"
	envoyRevision = "v1.4.1-0.20260122083618-3fb702589d36"
)

// buildEnvoy builds the server into a folder. It downloads what it needs once.
func buildEnvoy(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "install", envoyProgram+"@"+envoyRevision)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return filepath.Join(dir, filepath.Base(envoyProgram)), nil
}

const envoyDomain = "bench"

// envoyConfig makes a configuration with the limits of exactQuotas. One limit that nobody uses makes
// each edition differ.
func envoyConfig(edition int) string {
	text := "domain: " + envoyDomain + "\ndescriptors:\n"
	for _, unit := range []string{"minute", "second"} {
		text += fmt.Sprintf("- {key: %s, rate_limit: {unit: %[1]s, requests_per_unit: %d}}\n", unit, exactQuotas[unit].n)
	}
	return text + fmt.Sprintf("- {key: unused, rate_limit: {unit: day, requests_per_unit: %d}}\n", edition+1)
}

// envoyFolder is the folder of the configuration, which all processes share.
func (y *exactYard) envoyFolder() string { return filepath.Join(y.dir, "envoy", "limits", "config") }

// writeEnvoy replaces the configuration at once.
func (y *exactYard) writeEnvoy(edition int) error {
	file := filepath.Join(y.dir, "bench.yaml")
	if err := os.WriteFile(file, []byte(envoyConfig(edition)), 0o600); err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(y.envoyFolder(), "bench.yaml"))
}

func startEnvoy(y *exactYard, s *exactSystem) error {
	if err := os.MkdirAll(y.envoyFolder(), 0o700); err != nil {
		return err
	}
	if err := y.writeEnvoy(0); err != nil {
		return err
	}
	return y.startProcesses(s, func(_ *yard, address string) ([]string, error) {
		return envoyArguments(y.envoy, y.redis, filepath.Dir(y.envoyFolder()), address, y.freeAddress()), nil
	})
}

// envoyArguments starts Envoy's rate limit service, which serves POST /json at one address and gRPC at
// another. Its configuration is in folder/config.
func envoyArguments(program string, redis *redistest.Server, folder, address, grpc string) []string {
	host, port, _ := strings.Cut(address, ":")
	_, grpcPort, _ := strings.Cut(grpc, ":")
	return []string{
		"env", "HOST=" + host, "PORT=" + port, "GRPC_HOST=" + host, "GRPC_PORT=" + grpcPort,
		"DEBUG_HOST=" + host, "DEBUG_PORT=0", "LOG_LEVEL=error",
		"USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + host + ":0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(),
		"RUNTIME_ROOT=" + filepath.Dir(folder), "RUNTIME_SUBDIRECTORY=" + filepath.Base(folder),
		"RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		program,
	}
}

func reloadEnvoy(y *exactYard, _ *exactSystem) error {
	y.editions++
	return y.writeEnvoy(y.editions)
}

// jsonRequest asks over HTTP, which the server also offers beside gRPC.
func jsonRequest(ctx context.Context, address, unit, key string) (*http.Request, error) {
	body := fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":%q,"value":%q}]}]}`, envoyDomain, unit, key)
	return http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/json", strings.NewReader(body))
}

func jsonProbe(ctx context.Context, address string) (*http.Request, error) {
	return jsonRequest(ctx, address, "second", "probe")
}
