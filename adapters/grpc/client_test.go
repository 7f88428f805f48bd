// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
	"github.com/diana-limiter/diana/adapters/rpctest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rate"
)

// newCaller returns a client whose calls wait for a rate, and the service that it calls.
func newCaller(t *testing.T, of limit.Limit, o dianagrpc.ClientOptions) (client, *rpctest.Service) {
	t.Helper()
	limiter, err := rate.New(of, rate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service := rpctest.NewService()
	server := grpc.NewServer(
		grpc.UnaryInterceptor(dianagrpc.UnaryServerInterceptor(rpctest.Limiter(t, "url: /\nrules: [{rpu: 1000}]"))),
	)
	server.RegisterService(&description, service)
	return dial(t, listen(t, server),
		grpc.WithUnaryInterceptor(o.UnaryClientInterceptor(limiter)),
		grpc.WithStreamInterceptor(o.StreamClientInterceptor(limiter)),
	), service
}

var daily = limit.Limit{N: 1, Unit: 24 * time.Hour}

func TestClientWaits(t *testing.T) {
	t.Parallel()
	c, service := newCaller(t, limit.Limit{N: 1, Unit: 10 * time.Millisecond}, dianagrpc.ClientOptions{})
	for _, kind := range []rpctest.Kind{rpctest.Unary, rpctest.Bidi, rpctest.Unary, rpctest.Bidi} {
		if r := c.call(t.Context(), rpctest.Call{Kind: kind, Messages: []string{"ok", "ok"}}); r.Code != rpctest.OK {
			t.Errorf("%v: code %d (%s)", kind, r.Code, r.Text)
		}
	}
	if n := service.Calls.Load(); n != 4 {
		t.Errorf("%d calls", n)
	}
}

// A call that cannot start in time fails at once, and reaches no server.
func TestClientFails(t *testing.T) {
	t.Parallel()
	deadline, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		options dianagrpc.ClientOptions
		want    codes.Code
		cause   error
	}{
		{"deadline", deadline, dianagrpc.ClientOptions{}, codes.ResourceExhausted, rate.ErrTooLong},
		{"longest wait", t.Context(), dianagrpc.ClientOptions{MaxWait: time.Hour}, codes.ResourceExhausted, rate.ErrTooLong},
		{"no wait", t.Context(), dianagrpc.ClientOptions{MaxWait: -1}, codes.ResourceExhausted, rate.ErrTooLong},
		{"cancelled", cancelled, dianagrpc.ClientOptions{}, codes.Canceled, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, service := newCaller(t, daily, c.options)
			call := func(ctx context.Context, kind rpctest.Kind) error {
				if kind == rpctest.Unary {
					return client.conn.Invoke(ctx, kind.Method(), nil, nil)
				}
				_, err := client.conn.NewStream(ctx, &description.Streams[kind-1], kind.Method())
				return err
			}
			if r := client.call(t.Context(), rpctest.Call{Messages: []string{"ok"}}); r.Code != rpctest.OK {
				t.Fatal(r.Text) // the next call pays for it
			}
			calls := service.Calls.Load()
			for _, kind := range []rpctest.Kind{rpctest.Unary, rpctest.Bidi} {
				err := call(c.ctx, kind)
				if status.Code(err) != c.want || c.cause != nil && !errors.Is(err, c.cause) {
					t.Errorf("%v: %v", kind, err)
				}
			}
			if n := service.Calls.Load(); n != calls {
				t.Errorf("%d calls have reached the service after %d", n, calls)
			}
		})
	}
}
