// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/apikeys"
)

// serve serves both services, and returns a connection to them.
func serve(t *testing.T, yaml string) (*Server, *grpc.ClientConn) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	s := NewServer(open(t, limits), NewAuthorization(limiter))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, conn
}

// A client of gRPC reaches the rate limit service, and health until the server stops.
func TestServer(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, "limits: []")
	a, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("path=/cart"))
	if err != nil || a.GetOverallCode() != rls.RateLimitResponse_OK || a.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("%v, %v", a, err)
	}
	fields := map[string]string{}
	for _, h := range a.GetResponseHeadersToAdd() {
		fields[h.GetKey()] = h.GetValue()
	}
	if !strings.HasPrefix(fields["RateLimit"], `"shop.path_/cart";r=1;t=`) || !strings.HasPrefix(fields["RateLimit-Policy"], `"shop.path_/cart";q=2;w=31536000`) {
		t.Errorf("fields %v", fields)
	}
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	health := grpc_health_v1.NewHealthClient(conn)
	for _, name := range []string{"", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization"} {
		h, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || h.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, h, err)
		}
	}
	// A client that watches the health does not delay the end.
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := watch.Recv(); err != nil || h.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(h, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if h, err := watch.Recv(); err != nil || h.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Error(h, err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// The authorization decides by the rules of a Limiter.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, `
identity: {trusted_proxies: [10.0.0.0/8]}
limits:
- {url: POST /a, rules: [{name: a, actor: ip, unit: day, rpu: 1}]}
- {url: /b, rules: [{name: b, actor: 'query:key', unit: day, rpu: 1}]}
- {url: /c, divert: {status: 200, body: later}, rules: [{name: c, unit: day, rpu: 0}]}
`)
	client := auth.NewAuthorizationClient(conn)
	check := func(method, path, peer string, headers map[string]string) *auth.CheckResponse {
		t.Helper()
		a, err := client.Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: peer, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 5000},
			}}}},
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
				Method: method, Path: path, Host: "shop.example", Headers: headers,
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for i, row := range []struct {
		method, path, peer string
		headers            map[string]string
		status             int
	}{
		{"POST", "/a?x", "192.0.2.1", nil, 200},
		{"POST", "/a", "192.0.2.1", nil, 429},
		{"GET", "/a", "192.0.2.1", nil, 200},
		{"GET", "/a", "192.0.2.1", map[string]string{"x-http-method-override": "POST"}, 429},
		{"POST", "/x/../a", "192.0.2.1", nil, 429},
		{"POST", "/a", "192.0.2.1", map[string]string{"x-forwarded-for": "203.0.113.1"}, 429}, // not a trusted proxy
		{"POST", "/a", "10.0.0.1", map[string]string{"x-forwarded-for": "203.0.113.1"}, 200},
		{"POST", "/a#x", "192.0.2.1", nil, 429},
		{"GET", "/b?key=1", "192.0.2.1", nil, 200},
		{"GET", "/b?key=1", "192.0.2.1", nil, 429},
		{"GET", "/b?key=2", "192.0.2.1", nil, 200},
		{"GET", "/c", "192.0.2.1", nil, 429},
		{"GET", "/x/%2e%2e/b", "192.0.2.1", nil, 429},
		{"GET", "", "192.0.2.1", nil, 200},
	} {
		a := check(row.method, row.path, row.peer, row.headers)
		got := 200
		if denied := a.GetDeniedResponse(); denied != nil {
			got = int(denied.GetStatus().GetCode())
			if a.GetStatus().GetCode() != int32(codes.PermissionDenied) || denied.GetBody() == "" {
				t.Errorf("%d: %v", i, a)
			}
		} else if a.GetStatus().GetCode() != 0 || a.GetOkResponse() == nil {
			t.Errorf("%d: %v", i, a)
		}
		if got != row.status {
			t.Errorf("%d: %s %s of %s gets %d, want %d", i, row.method, row.path, row.peer, got, row.status)
		}
	}
	a := check("POST", "/a", "192.0.2.1", nil)
	fields := map[string]string{}
	for _, h := range a.GetDeniedResponse().GetHeaders() {
		fields[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	if fields["retry-after"] == "" || fields["content-type"] != "application/problem+json" || !strings.Contains(fields["ratelimit"], `"a";r=0`) {
		t.Errorf("fields %v", fields)
	}
	var problem struct{ Status int }
	if err := json.Unmarshal([]byte(a.GetDeniedResponse().GetBody()), &problem); err != nil || problem.Status != 429 {
		t.Errorf("%+v, %v", problem, err)
	}
	if _, err := client.Check(t.Context(), &auth.CheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// keyOfAnn returns an API key of the account ann, and the file of identity.keys that has it.
func keyOfAnn(t *testing.T) (key, file string) {
	t.Helper()
	key, line, err := apikeys.New("ann", "", "")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, file
}

// Envoy removes the key that has proved an account, and sets the fields for the upstream, whatever the client has sent.
func TestAuthorizationKeys(t *testing.T) {
	t.Parallel()
	key, file := keyOfAnn(t)
	_, conn := serve(t, fmt.Sprintf(`
identity: {keys: {file: %q}, account: [key:account], upstream_headers: {Authorization: Bearer of-provider, X-Tenant: a}}
limits: [{url: /, rules: [{actor: account, unit: day, rpu: 10}]}]
`, file))
	for name, row := range map[string]struct {
		headers map[string]string
		status  codes.Code
		removed []string
		set     map[string]string
	}{
		"a key":           {map[string]string{"x-api-key": key, "x-tenant": "b", "accept": "*/*"}, codes.OK, []string{"x-api-key"}, map[string]string{"authorization": "Bearer of-provider", "x-tenant": "a"}},
		"twice":           {map[string]string{"authorization": "Bearer " + key, "api-key": key}, codes.OK, []string{"api-key"}, map[string]string{"authorization": "Bearer of-provider", "x-tenant": "a"}},
		"a guess":         {map[string]string{"x-api-key": "guess"}, codes.Unauthenticated, nil, nil},
		"a key and guess": {map[string]string{"x-api-key": key, "api-key": "guess"}, codes.Unauthenticated, nil, nil},
		"none":            {map[string]string{"x-tenant": "b"}, codes.OK, []string{"x-tenant"}, map[string]string{}},
	} {
		a, err := auth.NewAuthorizationClient(conn).Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET", Path: "/", Host: "a.example", Headers: row.headers}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if row.status != codes.OK {
			if denied := a.GetDeniedResponse(); denied == nil || denied.GetStatus().GetCode() != 401 {
				t.Errorf("%s: %v, expected 401", name, a)
			}
			continue
		}
		set := map[string]string{}
		for _, o := range a.GetOkResponse().GetHeaders() {
			set[o.GetHeader().GetKey()] = o.GetHeader().GetValue()
		}
		if removed := a.GetOkResponse().GetHeadersToRemove(); !slices.Equal(removed, row.removed) || !maps.Equal(set, row.set) {
			t.Errorf("%s: removes %v and sets %v, expected %v and %v", name, removed, set, row.removed, row.set)
		}
	}
}

// POST /json answers as envoyproxy/ratelimit does.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := open(t, limits)
	post := func(method, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/json", strings.NewReader(body)))
		return w
	}
	const once = `{"domain": "shop", "descriptors": [{"entries": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}]}`
	for i, row := range []struct {
		method, body string
		status       int
		has          string
	}{
		{"POST", once, 200, `"overallCode":"OK"`},
		{"POST", once, 429, `"overallCode":"OVER_LIMIT"`},
		{"POST", `{"domain": "shop"}`, 400, "descriptor list must not be empty"},
		{"POST", `{"domain": 1}`, 400, ""},
		{"POST", `[]`, 400, ""},
		{"POST", ``, 400, ""},
		{"POST", strings.Repeat(" ", mostJSON+1), 413, ""},
		{"GET", once, 405, ""},
	} {
		w := post(row.method, row.body)
		if w.Code != row.status || !strings.Contains(strings.ReplaceAll(w.Body.String(), " ", ""), strings.ReplaceAll(row.has, " ", "")) {
			t.Errorf("%d: %d %s", i, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && !json.Valid(bytes.TrimSpace(w.Body.Bytes())) {
			t.Errorf("%d: %s is not JSON", i, w.Body)
		}
	}
}
