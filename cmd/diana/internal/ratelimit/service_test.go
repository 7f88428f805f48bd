// SPDX-License-Identifier: MIT

package ratelimit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// limited are the limits of the tests.
const limited = "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 2}}\n"

// running is a service and its addresses by name.
type running struct {
	*Service
	at      map[string]string
	signals chan os.Signal
	ended   chan error
}

// start starts a service with free ports. Limits are in files below a folder.
func start(t *testing.T, text, folder string) *running {
	t.Helper()
	s := readValid(t, "HOST=127.0.0.1 PORT=0 GRPC_HOST=127.0.0.1 GRPC_PORT=0 DEBUG_HOST=127.0.0.1 DEBUG_PORT=0 USE_PROMETHEUS=true PROMETHEUS_ADDR=127.0.0.1:0 "+
		"RUNTIME_ROOT="+folder+" "+text)
	opened, err := Open(t.Context(), &s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Service: opened, at: map[string]string{}, signals: make(chan os.Signal, 2), ended: make(chan error, 1)}
	opened.Addresses(func(name, address string) { r.at[name] = address })
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.ended <- opened.Run(ctx, r.signals) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// get returns the status and the body of a page.
func (r *running) get(t *testing.T, name, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + r.at[name] + path)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status + " " + string(text)
}

func dial(t *testing.T, address string, secure credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// folderOf writes the limits to a folder, as RUNTIME_ROOT has it.
func folderOf(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "config", "limits"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// A service with mistakes in its files starts, is not healthy where that is asked for, and works when they are mended.
func TestMended(t *testing.T) {
	t.Parallel()
	root := folderOf(t, "domain: [")
	r := start(t, "REDIS_SOCKET_TYPE=tcp REDIS_URL="+redistest.Start(t).Addr()+" HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", root)
	if got := r.get(t, "http", "/healthcheck"); got != "500 Internal Server Error " {
		t.Errorf("/healthcheck: %s", got)
	}
	conn := dial(t, r.at["grpc"], insecure.NewCredentials())
	question := &rls.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}},
	}}
	ask := func() error {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), question)
		return err
	}
	if err := ask(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want that nothing is loaded", err)
	}
	for _, body := range []string{"{", "[]", `{"descriptors": []}`} {
		answer, err := http.Post("http://"+r.at["http"]+"/json", "", strings.NewReader(body))
		if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v", body, answer, err)
		}
	}
	// As there, the call without limits and the one without a domain count, and the malformed one does not.
	if page, want := r.get(t, "metrics", "/metrics"), `_should_rate_limit_error{err_type="service_error"} 2`; !strings.Contains(page, want+"\n") {
		t.Errorf("/metrics lacks %s", want)
	}
	serving := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		h, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
		if err != nil {
			t.Fatal(err)
		}
		return h.GetStatus()
	}
	if got := serving(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v", got)
	}
	if err := os.WriteFile(filepath.Join(root, "config", "limits"), []byte(limited), 0o600); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return ask() == nil && serving() == grpc_health_v1.HealthCheckResponse_SERVING })
	if got := r.get(t, "http", "/healthcheck"); got != "200 OK OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	if got, want := r.get(t, "debug", "/rlconfig"), "200 OK shop.user: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false\n"; got != want {
		t.Errorf("/rlconfig: %s, want %s", got, want)
	}
	page := r.get(t, "metrics", "/metrics")
	for _, want := range []string{
		"ratelimit_service_config_load_error 1\n", "ratelimit_service_config_load_success 1\n",
		`ratelimit_service_total_requests{grpc_method="Check"} `, `ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} `, "diana_requests_total",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	r.signals <- syscall.SIGHUP // it is no reason to stop
	r.signals <- syscall.SIGTERM
	err := <-r.ended
	r.ended <- nil // for the cleanup
	if err != nil {
		t.Error(err)
	}
}

// Limits are counted in a Redis at a socket, which is the default of REDIS_SOCKET_TYPE.
func TestRedisSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	redis := redistest.Start(t, "--unixsocket", socket)
	r := start(t, "REDIS_SOCKET_TYPE=unix REDIS_URL="+socket+" REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true", folderOf(t, limited))
	testproc.Eventually(t, func() bool { return r.get(t, "http", "/healthcheck") == "200 OK OK" })
	answer, err := http.Post("http://"+r.at["http"]+"/json", "", strings.NewReader(`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	if n := redis.Must("KEYS", "diana:envoy:*"); len(n.([]any)) != 3 { // the counter, the gateways and the calls of this one
		t.Errorf("Redis has %v, want a counter", n)
	}
	redis.Kill()
	testproc.Eventually(t, func() bool { return r.get(t, "http", "/healthcheck") == "500 Internal Server Error " })
	redis.Restart() // else the end waits for it
}

// REDIS_* reach a server over TLS with a password, the nodes of a Cluster, and the master of Sentinels.
func TestRedisServers(t *testing.T) {
	t.Parallel()
	secure := redistest.Options{TLS: true, Username: "ann", Password: "pass:word"}.Start(t)
	cluster, sentinel := redistest.StartCluster(t, 3), redistest.StartSentinel(t)
	for name, text := range map[string]string{
		"TLS":      "REDIS_SOCKET_TYPE=tcp REDIS_URL=" + secure.Addr() + " REDIS_AUTH=ann:pass:word REDIS_TLS=true REDIS_TLS_CACERT=" + secure.CAFile(),
		"Cluster":  "REDIS_TYPE=CLUSTER REDIS_URL=" + strings.Join(cluster.Addrs(), ","),
		"Sentinel": "REDIS_TYPE=SENTINEL REDIS_URL=" + sentinel.MasterName + "," + strings.Join(sentinel.Addrs(), ","),
	} {
		r := start(t, text+" REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true", folderOf(t, limited))
		testproc.Eventually(t, func() bool { return r.get(t, "http", "/healthcheck") == "200 OK OK" })
		answer, err := http.Post("http://"+r.at["http"]+"/json", "", strings.NewReader(`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`))
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", name, answer, err)
			continue
		}
		_ = answer.Body.Close()
		if n := r.limits.Status().Fallback; n != 0 {
			t.Errorf("%s: %d decisions without Redis", name, n)
		}
	}
}

// selfSigned returns a certificate of a server and of a client, and its files.
func selfSigned(t *testing.T) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"envoy.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert, key = write("cert.pem", "CERTIFICATE", signed), write("key.pem", "PRIVATE KEY", secret)
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

// Over TLS a client must show a certificate that the authority has signed, with the name of GRPC_CLIENT_TLS_SAN.
func TestClients(t *testing.T) {
	t.Parallel()
	pair, cert, key := selfSigned(t)
	secure := "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=" + cert + " GRPC_SERVER_TLS_KEY=" + key + " GRPC_CLIENT_TLS_CACERT=" + cert
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	root, redis := folderOf(t, limited), redistest.Start(t).Addr()
	for _, row := range []struct {
		san   string
		shows bool
		ok    bool
	}{
		{"", true, true}, {"", false, false},
		{" GRPC_CLIENT_TLS_SAN=envoy.test", true, true}, {" GRPC_CLIENT_TLS_SAN=another.test", true, false},
	} {
		r := start(t, "REDIS_SOCKET_TYPE=tcp REDIS_URL="+redis+" "+secure+row.san, root)
		c := &tls.Config{RootCAs: roots}
		if row.shows {
			c.Certificates = []tls.Certificate{pair}
		}
		conn := dial(t, r.at["grpc"], credentials.NewTLS(c))
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "shop"})
		if ok := status.Code(err) == codes.InvalidArgument; ok != row.ok { // it has no descriptors
			t.Errorf("%+v: %v", row, err)
		}
	}
	s := readValid(t, "GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/none GRPC_SERVER_TLS_KEY=/none")
	if _, err := Open(t.Context(), &s, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that there is no file", err)
	}
}
