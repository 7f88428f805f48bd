// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
)

// The handler does not see the key of a client. Further limiters know who it is.
func TestCredentialsAreRemoved(t *testing.T) {
	t.Parallel()
	l, further := adaptertest.Keyed(t), adaptertest.Keyed(t)
	sent := metadata.NewIncomingContext(t.Context(), metadata.Pairs(adaptertest.Key, adaptertest.KeyValue, adaptertest.Upstream, "of the client", "kept", "yes"))
	check := func(ctx context.Context) {
		md, _ := metadata.FromIncomingContext(ctx)
		seen := http.Header{}
		for name, lines := range md {
			if name != strings.ToLower(name) {
				t.Errorf("the name %q is not in lower case", name)
			}
			seen[http.CanonicalHeaderKey(name)] = lines
		}
		if adaptertest.CheckUpstream(t, seen); seen.Get("Kept") != "yes" {
			t.Errorf("the handler has got %v", seen)
		}
	}

	unary := &grpc.UnaryServerInfo{Server: t, FullMethod: "/a.B/C"}
	_, err := dianagrpc.UnaryServerInterceptor(l)(sent, nil, unary, func(ctx context.Context, req any) (any, error) {
		return dianagrpc.UnaryServerInterceptor(further)(ctx, req, unary, func(ctx context.Context, _ any) (any, error) {
			check(ctx)
			return nil, nil
		})
	})
	if err != nil {
		t.Error(err)
	}

	stream, info := incoming{ctx: sent}, &grpc.StreamServerInfo{FullMethod: "/a.B/D"}
	err = dianagrpc.StreamServerInterceptor(l)(t, stream, info, func(service any, s grpc.ServerStream) error {
		return dianagrpc.StreamServerInterceptor(further)(service, s, info, func(_ any, s grpc.ServerStream) error {
			check(s.Context())
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}

	err = dianagrpc.Options{PerMessage: true}.StreamServerInterceptor(l)(t, stream, info, func(_ any, s grpc.ServerStream) error {
		for range 2 {
			if err := s.RecvMsg(nil); err != nil {
				return err
			}
			check(s.Context())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// incoming is a stream of messages without content.
type incoming struct {
	grpc.ServerStream // nobody calls its other methods
	ctx               context.Context
}

func (s incoming) Context() context.Context { return s.ctx }

func (incoming) RecvMsg(any) error { return nil }

func (incoming) SetHeader(metadata.MD) error { return nil }

func (incoming) SetTrailer(metadata.MD) {}
