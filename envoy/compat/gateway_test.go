// SPDX-License-Identifier: MIT

package compat

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	sent "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The program runs with the command, the variables and the certificates of Envoy Gateway. It starts without limits, and
// takes them over TLS from the control plane. It answers Envoy over TLS, and a probe at /healthcheck. With -all
// envoyproxy/ratelimit does the same.
func TestEnvoyGateway(t *testing.T) {
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(*program, link); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"diana": link}
	if *all {
		programs["envoyproxy"] = buildPeer(t).service
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			certs := newCertificates(t)
			control, set := startControl(t, certs.config)
			host := func() string { return fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t)) }
			s := &server{log: filepath.Join(t.TempDir(), "log"), addr: host(), json: host(), metrics: host()}
			port := func(address string) string { return address[len("127.0.0.1:"):] }
			s.start(t, "env", "PORT="+port(s.json), "GRPC_PORT="+port(s.addr), "DEBUG_PORT="+port(host()), // these are for the test
				"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
				"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
				"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+control, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
				"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+certs.cert, "GRPC_SERVER_TLS_KEY="+certs.key, "GRPC_SERVER_TLS_CA_CERT="+certs.cert,
				"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+certs.cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+certs.key,
				"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+certs.cert, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
				"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redistest.Start(t).Addr(), "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+s.metrics, "STATS_FLUSH_INTERVAL=100ms", program)
			testproc.Eventually(t, func() bool {
				r, err := http.Get("http://" + s.json + "/healthcheck")
				return err == nil && r.StatusCode == http.StatusOK && body(t, r) == "OK"
			})
			conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(credentials.NewTLS(certs.config)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			s.client = rls.NewRateLimitServiceClient(conn)
			q := question("shop", 0, "user=ann")
			testproc.Eventually(t, func() bool { // the listener may open a little later
				_, err := s.client.ShouldRateLimit(t.Context(), q)
				return err != nil && strings.Contains(err.Error(), "no rate limit configuration loaded")
			})
			set(3)
			testproc.Eventually(t, func() bool {
				_, err := s.client.ShouldRateLimit(t.Context(), q)
				return err == nil
			})
			for i, want := range []string{"ok | ok 1 of 3/year", "ok | ok 0 of 3/year", "over | over 0 of 3/year"} {
				if got := s.ask(t, "shop", 0, "user=ann"); got != want {
					t.Errorf("request %d: %s, want %s", i, got, want)
				}
			}
			testproc.Eventually(t, func() bool {
				return s.sample(t, `ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"`) == "1"
			})
		})
	}
}

// certificates are a certificate of a server and of a client, with its files, and what uses it as both.
type certificates struct {
	cert, key string
	config    *tls.Config
}

func newCertificates(t *testing.T) certificates {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(err)
	dir := t.TempDir()
	c := certificates{
		cert: write(t, filepath.Join(dir, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))),
		key:  write(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))),
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	c.config = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	return c
}

// startControl starts a control plane. set sends the limits of the domain shop: n requests of a user each year.
func startControl(t *testing.T, secure *tls.Config) (address string, set func(n uint32)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, xds.NewServer(ctx, snapshots, nil))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() {
		cancel()
		s.Stop()
	})
	return l.Addr().String(), func(n uint32) {
		t.Helper()
		limits := &sent.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*sent.RateLimitDescriptor{
			{Key: "user", RateLimit: &sent.RateLimitPolicy{Unit: sent.RateLimitUnit(rls.RateLimitResponse_RateLimit_YEAR), RequestsPerUnit: n}},
		}}
		snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.RateLimitConfigType: {limits}})
		if err == nil {
			err = snapshots.SetSnapshot(ctx, "envoy-ratelimit", snapshot)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
