// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	sent "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/internal/testproc"
)

// control is a control plane of go-control-plane. It remembers what its client has rejected.
type control struct {
	cache cache.SnapshotCache
	addr  string
	stop  func()

	mu       sync.Mutex
	rejected []string
	nodes    []*core.Node
}

func startControl(t *testing.T, o ...grpc.ServerOption) *control {
	t.Helper()
	c := &control{cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	c.serve(t, "127.0.0.1:0", o...)
	return c
}

// serve starts the server, again after stop.
func (c *control) serve(t *testing.T, addr string, o ...grpc.ServerOption) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	s := grpc.NewServer(o...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, c.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.nodes = append(c.nodes, r.GetNode())
			if e := r.GetErrorDetail(); e != nil {
				c.rejected = append(c.rejected, e.GetMessage())
			}
			return nil
		},
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	c.stop = func() {
		cancel()
		s.Stop()
		<-done
	}
	t.Cleanup(c.stop)
}

// set sends a version.
func (c *control) set(t *testing.T, version string, list ...*sent.RateLimitConfig) {
	t.Helper()
	resources := make([]types.Resource, len(list))
	for i, r := range list {
		resources[i] = r
	}
	s, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cache.SetSnapshot(t.Context(), "node", s); err != nil {
		t.Fatal(err)
	}
}

func (c *control) rejections() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.rejected...)
}

// userLimit returns the limits of a domain: n requests of a user each year.
func userLimit(domain string, n uint32) *sent.RateLimitConfig {
	return &sent.RateLimitConfig{Name: "of " + domain, Domain: domain, Descriptors: []*sent.RateLimitDescriptor{
		{Key: "user", RateLimit: &sent.RateLimitPolicy{Unit: sent.RateLimitUnit(descriptors.Year), RequestsPerUnit: n}},
	}}
}

// following returns what follows a control plane.
func following(t *testing.T, x XDS, change ...func(*RateLimitOptions)) *RateLimit {
	t.Helper()
	x.Node, x.Retry = "node", 10*time.Millisecond
	return open(t, "", append(change, func(o *RateLimitOptions) { o.Paths, o.XDS = nil, &x })...)
}

// settles waits until a request of ann gets an answer, and charges nothing.
func settles(t *testing.T, s *RateLimit, want string) {
	t.Helper()
	zero := request("user=ann")
	zero.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	err := testproc.Poll(testproc.Patience, func() error {
		if got := ask(t, s, zero); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The first limits are in force when OpenRateLimit returns. A bad version is rejected with its mistakes, and the good
// one stays. The server can go away and come back with other limits under the same version.
func TestXDS(t *testing.T) {
	t.Parallel()
	c := startControl(t)
	c.set(t, "1", userLimit("shop", 5), userLimit("bank", 7))
	s := following(t, XDS{Address: c.addr, Metadata: map[string]string{"zone": "a"}})
	if got, want := ask(t, s, request("user=ann")), "ok | ok 4 of 5/year"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c.mu.Lock()
	node := c.nodes[0]
	c.mu.Unlock()
	if got := node; got.GetId() != "node" || got.GetMetadata().GetFields()["zone"].GetStringValue() != "a" {
		t.Errorf("node %v", got)
	}
	if got, want := s.Status().Config.Source, "xds://"+c.addr+"/node"; got != want {
		t.Errorf("source %s, want %s", got, want)
	}

	c.set(t, "2", userLimit("shop", 6))
	settles(t, s, "ok | ok 5 of 6/year")

	bad := userLimit("shop", 9)
	bad.Descriptors[0].RateLimit.Unit = sent.RateLimitUnit_UNKNOWN
	bad.Descriptors = append(bad.Descriptors, &sent.RateLimitDescriptor{Value: "x"})
	c.set(t, "3", bad)
	want := "of shop: descriptors[0].rate_limit"
	if err := testproc.Poll(testproc.Patience, func() error {
		if r := c.rejections(); len(r) == 0 || !strings.HasPrefix(r[0], want) || !strings.Contains(r[0], "of shop: descriptors[1]") {
			return fmt.Errorf("rejected %q, want %q and more", r, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !s.Failed() {
		t.Error("the bad version is in force")
	}
	settles(t, s, "ok | ok 5 of 6/year")

	c.set(t, "4", userLimit("shop", 7))
	settles(t, s, "ok | ok 6 of 7/year")
	if s.Failed() {
		t.Error("the good version has failed")
	}

	c.stop()
	settles(t, s, "ok | ok 6 of 7/year")
	c.set(t, "4", userLimit("shop", 8))
	c.serve(t, c.addr)
	settles(t, s, "ok | ok 7 of 8/year")

	c.set(t, "5") // no limits at all
	settles(t, s, "ok | ok")
}

// Without limits a service that has to start answers an error, until they arrive.
func TestXDSStartWithout(t *testing.T) {
	t.Parallel()
	c := startControl(t)
	s := following(t, XDS{Address: c.addr}, func(o *RateLimitOptions) { o.StartWithout = true })
	if got, want := ask(t, s, request("user=ann")), "Unavailable: no rate limit configuration loaded"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.Loaded() {
		t.Error("loaded")
	}
	c.set(t, "1", userLimit("shop", 5))
	settles(t, s, "ok | ok 5 of 5/year")
}

// Over TLS both show certificates, and each stream has the headers. A server whose certificate nobody has signed is no server.
func TestXDSTLS(t *testing.T) {
	t.Parallel()
	signed := httptest.NewTLSServer(http.NotFoundHandler())
	defer signed.Close()
	pair := signed.TLS.Certificates[0]
	var key atomic.Value
	c := startControl(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})),
		grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			m, _ := metadata.FromIncomingContext(stream.Context())
			key.Store(strings.Join(m.Get("key"), ","))
			return handle(s, stream)
		}))
	c.set(t, "1", userLimit("shop", 5))
	roots := x509.NewCertPool()
	roots.AddCert(signed.Certificate())
	s := following(t, XDS{Address: c.addr, Headers: map[string]string{"key": "secret"}, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
	if got, want := ask(t, s, request("user=ann")), "ok | ok 4 of 5/year"; got != want || key.Load() != "secret" {
		t.Errorf("%s with the key %q, want %s with secret", got, key.Load(), want)
	}
	stranger := following(t, XDS{Address: c.addr, TLS: &tls.Config{}}, func(o *RateLimitOptions) { o.StartWithout = true })
	if stranger.Loaded() || stranger.Status().Config.Reason != "no valid descriptors have arrived yet" {
		t.Errorf("limits of a stranger: %s", stranger.Status().Config.Reason)
	}
}

// Without StartWithout, OpenRateLimit waits for limits, and gives up with its context.
func TestXDSWaits(t *testing.T) {
	t.Parallel()
	c := startControl(t)
	ctx, cancel := context.WithCancel(t.Context())
	x := &XDS{Address: c.addr, Node: "node"}
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := OpenRateLimit(ctx, RateLimitOptions{XDS: x, Settings: open(t, limits).options.Settings}); err == nil {
		t.Error("no error")
	}
}

// Ten thousand limits, each key of a descriptor, and quota_mode, which the messages do not know yet.
func TestXDSKeys(t *testing.T) {
	t.Parallel()
	year := func(n uint32) *sent.RateLimitPolicy {
		return &sent.RateLimitPolicy{Unit: sent.RateLimitUnit(descriptors.Year), RequestsPerUnit: n}
	}
	quota := &sent.RateLimitDescriptor{Key: "quota", RateLimit: year(0)}
	quota.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, quotaMode, protowire.VarintType), 1))
	cart, gold := year(2), year(100)
	cart.Name, gold.Replaces = "cart", []*sent.RateLimitReplace{{Name: "cart"}}
	shop := &sent.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*sent.RateLimitDescriptor{
		quota,
		{Key: "try", RateLimit: year(0), ShadowMode: true},
		{Key: "free", RateLimit: &sent.RateLimitPolicy{Unlimited: true}},
		{Key: "path", Value: "/c*", RateLimit: cart},
		{Key: "plan", Value: "gold <&>\u2028\U0001f600\"\\", RateLimit: gold},
		{Key: "a", Descriptors: []*sent.RateLimitDescriptor{{Key: "b", RateLimit: year(1)}}},
	}}
	for i := range 10_000 {
		shop.Descriptors = append(shop.Descriptors, &sent.RateLimitDescriptor{Key: "n", Value: fmt.Sprint(i), RateLimit: year(uint32(i))})
	}
	c := startControl(t)
	c.set(t, "1", shop)
	s := following(t, XDS{Address: c.addr})
	for _, row := range []struct{ text, want string }{
		{"quota=x", "ok | ok 0 of 0/year"},
		{"try=x", "ok | ok 0 of 0/year"},
		{"free=x", "ok | ok unlimited"},
		{"path=/cart", "ok | ok 1 of 2/year"},
		{"plan=gold <&>\u2028\U0001f600\"\\", "ok | ok 99 of 100/year"},
		{"a=1,b=2", "ok | ok 0 of 1/year"},
		{"n=9999", "ok | ok 9998 of 9999/year"},
	} {
		if got := ask(t, s, request(row.text)); got != row.want {
			t.Errorf("%s: %s, want %s", row.text, got, row.want)
		}
	}
}

// A response of another type, or with another resource, is rejected. One that is too large ends the stream, and the limits
// stay.
func TestXDSStrange(t *testing.T) {
	t.Parallel()
	node, err := anypb.New(&core.Node{Id: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		response *discovery.DiscoveryResponse
		want     string
	}{
		{&discovery.DiscoveryResponse{TypeUrl: node.GetTypeUrl()}, "the type \"type.googleapis.com/envoy.config.core.v3.Node\", expected " + typeURL},
		{&discovery.DiscoveryResponse{TypeUrl: typeURL, Resources: []*anypb.Any{node}}, "resources[0]: "},
		{&discovery.DiscoveryResponse{TypeUrl: typeURL, Resources: []*anypb.Any{{TypeUrl: typeURL, Value: []byte{0xff}}}}, "resources[0]: "},
	} {
		if _, err := filesOf(row.response); err == nil || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%v: %v, want %s", row.response, err, row.want)
		}
	}
	c := startControl(t)
	c.set(t, "1", userLimit("shop", 5))
	s := following(t, XDS{Address: c.addr, MostMessage: 1000})
	large := userLimit("shop", 6)
	large.Name = strings.Repeat("x", 2000)
	c.set(t, "2", large)
	settles(t, s, "ok | ok 5 of 5/year")
	c.set(t, "3", userLimit("shop", 7))
	settles(t, s, "ok | ok 7 of 7/year")
}

// Two resources of one domain are joined, or are a mistake.
func TestXDSDomains(t *testing.T) {
	t.Parallel()
	c := startControl(t)
	second := userLimit("shop", 9)
	second.Name, second.Descriptors[0].Key = "second", "path"
	c.set(t, "1", userLimit("shop", 5), second)
	s := following(t, XDS{Address: c.addr}, func(o *RateLimitOptions) { o.Merge = true })
	if got, want := ask(t, s, request("user=ann", "path=/")), "ok | ok 4 of 5/year | ok 8 of 9/year"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	apart := following(t, XDS{Address: c.addr}, func(o *RateLimitOptions) { o.StartWithout = true })
	if err := testproc.Poll(testproc.Patience, func() error {
		if r := c.rejections(); len(r) < 2 || !strings.Contains(r[0], `the domain "shop" is given twice`) { // it is rejected again and again
			return fmt.Errorf("rejected %q", r)
		}
		return nil
	}); err != nil || apart.Loaded() {
		t.Error(err)
	}
}
