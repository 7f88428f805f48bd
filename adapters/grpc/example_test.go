// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rate"
)

// The examples read the configuration of README.md.
func TestMain(m *testing.M) {
	if err := os.Chdir("testdata"); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(dianagrpc.UnaryServerInterceptor(limiter)),
		grpc.ChainStreamInterceptor(dianagrpc.StreamServerInterceptor(limiter)),
	)

	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	check := clientOf(server)
	for _, account := range []string{"ann", "ann", "bob"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-account-id", account)
		_, err := check.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(account, status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			if quota, ok := detail.(*errdetails.QuotaFailure); ok {
				fmt.Println("refused by", quota.Violations[0].Subject)
			}
		}
	}
	// Output:
	// ann OK
	// ann ResourceExhausted
	// refused by checks
	// bob OK
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	server := grpc.NewServer()

	listener, err := net.Listen("tcp", ":50051")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func ExampleOptions() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	adapter := dianagrpc.Options{
		Actor: func(ctx context.Context, fullMethod string) (kind, value string) {
			return "account", accountOf(ctx) // of an interceptor that has checked a token
		},
		PerMessage: true,
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(checkToken, adapter.UnaryServerInterceptor(limiter)),
		grpc.ChainStreamInterceptor(adapter.StreamServerInterceptor(limiter)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	check := clientOf(server)
	for range 2 {
		_, err := check.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

func ExampleUnaryClientInterceptor() {
	address := serverForClients()
	limiter, err := rate.New(limit.Limit{N: 100, Unit: time.Second}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(dianagrpc.UnaryClientInterceptor(limiter)),
		grpc.WithChainStreamInterceptor(dianagrpc.StreamClientInterceptor(limiter)),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
}

type tokenKey struct{}

// checkToken stands for an interceptor that checks a token and puts its account into the context.
func checkToken(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(context.WithValue(ctx, tokenKey{}, "ann"), req)
}

func accountOf(ctx context.Context) string {
	account, _ := ctx.Value(tokenKey{}).(string)
	return account
}

func serverForClients() (address string) {
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return serveExample(server)
}

func serveExample(server *grpc.Server) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

// clientOf starts a server and returns a client of it.
func clientOf(server *grpc.Server) grpc_health_v1.HealthClient {
	conn, err := grpc.NewClient(serveExample(server), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return grpc_health_v1.NewHealthClient(conn)
}
