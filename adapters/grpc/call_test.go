// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/grpc"
	"github.com/diana-limiter/diana/config"
)

// transport drops the header and trailer of a call.
type transport struct{}

func (transport) Method() string               { return "/shop.Orders/List" }
func (transport) SetHeader(metadata.MD) error  { return nil }
func (transport) SendHeader(metadata.MD) error { return nil }
func (transport) SetTrailer(metadata.MD) error { return nil }

// BenchmarkCall is the interceptor alone, under a rule by a field and by an address.
func BenchmarkCall(b *testing.B) {
	for _, actor := range []string{"header:X-Account-Id", "ip"} {
		b.Run(actor, func(b *testing.B) {
			c, err := config.Parse("limits.yaml", []byte("{url: /, rules: [{actor: '"+actor+"', rpu: 1000000000}]}"))
			if err != nil {
				b.Fatal(err)
			}
			l, err := diana.Options{}.New(c)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5000}})
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(":authority", "localhost", "content-type", "application/grpc",
				"user-agent", "grpc-go/1.80.0", "x-account-id", "ann", "grpc-accept-encoding", "gzip"))
			ctx = grpc.NewContextWithServerTransportStream(ctx, transport{})
			info := &grpc.UnaryServerInfo{Server: l, FullMethod: "/shop.Orders/List"}
			next := func(context.Context, any) (any, error) { return nil, nil }
			intercept := dianagrpc.UnaryServerInterceptor(l)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := intercept(ctx, nil, info, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
