// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
	"github.com/diana-limiter/diana/adapters/rpctest"
)

// listen serves with a server until the end of the test, and returns its address.
func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// With mutual TLS the certificate of the client is its account, and the limiter sees the connection.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ofPeer := func(ctx context.Context, _ string) (kind, value string) {
		p, _ := peer.FromContext(ctx)
		if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
			value = tls.State.PeerCertificates[0].Subject.CommonName
		}
		return "account", value
	}
	l := rpctest.Limiter(t, "url: /\nrules: [{actor: account, rpu: 1, unit: day}]")
	roots := x509.NewCertPool()
	certificate := func(name string) tls.Certificate {
		c := selfSigned(t, name)
		roots.AddCert(c.Leaf)
		return c
	}
	of := map[string]tls.Certificate{"server": certificate("server"), "ann": certificate("ann"), "bob": certificate("bob")}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{of["server"]}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert})),
		grpc.UnaryInterceptor(dianagrpc.Options{Actor: ofPeer}.UnaryServerInterceptor(l)),
	)
	server.RegisterService(&description, rpctest.NewService())
	address := listen(t, server)
	for _, name := range []string{"ann", "bob"} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{of[name]}, RootCAs: roots, ServerName: "server",
		})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, want := range []rpctest.Code{rpctest.OK, rpctest.ResourceExhausted} {
			if r := (client{conn}).call(t.Context(), rpctest.Call{Messages: []string{"ok"}}); r.Code != want {
				t.Errorf("%s: code %d (%s), expected %d", name, r.Code, r.Text, want)
			}
		}
	}
}

func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// A server that forwards unknown services gets any path that a client sends.
func TestPathsOfUnknownServices(t *testing.T) {
	t.Parallel()
	l := rpctest.Limiter(t, "url: /a.B/C\nrules: [{rpu: 0}]")
	server := grpc.NewServer(
		grpc.StreamInterceptor(dianagrpc.StreamServerInterceptor(l)),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "reached") }),
	)
	conn := dial(t, listen(t, server)).conn
	for path, want := range map[string]codes.Code{
		"/a.B/D":                             codes.Unimplemented,
		"/a.B/C":                             codes.ResourceExhausted,
		"/A.b/c":                             codes.ResourceExhausted,
		"//a.B/C":                            codes.ResourceExhausted,
		"/a.B/C?x":                           codes.ResourceExhausted,
		"/a.B/%43":                           codes.ResourceExhausted,
		"/x/%2e%2e/a.B/C":                    codes.InvalidArgument,
		"/a.B/" + strings.Repeat("x", 8<<10): codes.InvalidArgument,
	} {
		if err := conn.Invoke(t.Context(), path, &wrapperspb.StringValue{}, &wrapperspb.StringValue{}); status.Code(err) != want {
			t.Errorf("%.40s: %v, expected %v", path, err, want)
		}
	}
	if n := l.Rejected(); n["path"] != 1 || n["path_length"] != 1 {
		t.Errorf("rejected %v", n)
	}
}

// A call without a valid credential is unauthenticated, and too many of them are refused unverified.
func TestCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := rpctest.Limiter(t, "identity: {required: any, keys: {file: "+strconv.Quote(file)+"}}\nlimits: [{url: /, rules: [{rpu: 100}]}]")
	server := grpc.NewServer(
		grpc.StreamInterceptor(dianagrpc.StreamServerInterceptor(l)),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "reached") }),
	)
	conn := dial(t, listen(t, server)).conn
	call := func(ctx context.Context) codes.Code {
		return status.Code(conn.Invoke(ctx, "/a.B/C", &wrapperspb.StringValue{}, &wrapperspb.StringValue{}))
	}
	if got := call(t.Context()); got != codes.Unauthenticated {
		t.Errorf("without a key: %v", got)
	}
	guess := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "guessed")
	for i := range 22 {
		want := codes.Unauthenticated
		if i >= 20 {
			want = codes.ResourceExhausted
		}
		if got := call(guess); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}

// An interceptor before the adapter can establish actors in the context with diana.WithActor.
func TestEstablishedActor(t *testing.T) {
	t.Parallel()
	l := rpctest.Limiter(t, "url: /\nrules: [{actor: account, rpu: 1, unit: day}]")
	accounts := make(chan string, 3)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(diana.WithActor((&http.Request{}).WithContext(ctx), "account", <-accounts).Context(), req)
		},
		dianagrpc.UnaryServerInterceptor(l),
	))
	server.RegisterService(&description, rpctest.NewService())
	c := dial(t, listen(t, server))
	for _, step := range []struct {
		account string
		want    rpctest.Code
	}{{"ann", rpctest.OK}, {"bob", rpctest.OK}, {"ann", rpctest.ResourceExhausted}} {
		accounts <- step.account
		if r := c.call(t.Context(), rpctest.Call{Messages: []string{"ok"}}); r.Code != step.want {
			t.Errorf("%s: code %d, expected %d", step.account, r.Code, step.want)
		}
	}
}

// A panic of the program's own functions releases what the call holds.
func TestOwnPanics(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, *diana.Decision) error { panic("of the test") }
	for _, perMessage := range []bool{false, true} {
		l := rpctest.Limiter(t, "url: /\nrules: [{name: slots, rpu: 1, algo: C, mode: shadow}, {rpu: 0}]")
		adapter := dianagrpc.Options{Refuse: panics, PerMessage: perMessage}
		server := grpc.NewServer(
			grpc.ChainUnaryInterceptor(around{}.unary, adapter.UnaryServerInterceptor(l)),
			grpc.ChainStreamInterceptor(around{}.stream, adapter.StreamServerInterceptor(l)),
		)
		server.RegisterService(&description, rpctest.NewService())
		c := dial(t, listen(t, server))
		for _, kind := range []rpctest.Kind{rpctest.Unary, rpctest.Bidi} {
			for range 2 {
				if r := c.call(t.Context(), rpctest.Call{Kind: kind, Messages: []string{"ok"}}); r.Code != rpctest.Internal {
					t.Errorf("%v: code %d (%s)", kind, r.Code, r.Text)
				}
			}
		}
		if rules := l.Status().Rules; rules[0].ShadowRefused != 0 {
			t.Errorf("a slot is held: %+v", rules[0])
		}
	}
}
