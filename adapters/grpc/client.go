// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/rate"
)

// ClientOptions are what a program decides about the calls that it makes itself. The zero value is ready
// to use.
type ClientOptions struct {
	// MaxWait is the longest time that a call waits for the limiter. 0 means that it waits until its
	// deadline. With a negative value, a call that would have to wait fails at once.
	MaxWait time.Duration
}

// UnaryClientInterceptor returns an interceptor whose calls wait for the limiter, with the zero
// ClientOptions. Each call costs 1. A call that cannot start in time fails at once with
// RESOURCE_EXHAUSTED, and its error wraps [rate.ErrTooLong]. A retry of gRPC itself costs nothing more.
func UnaryClientInterceptor(limiter *rate.Limiter) grpc.UnaryClientInterceptor {
	return ClientOptions{}.UnaryClientInterceptor(limiter)
}

// UnaryClientInterceptor is like the function of that name, with these options.
func (o ClientOptions) UnaryClientInterceptor(limiter *rate.Limiter) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if err := o.wait(ctx, limiter); err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, conn, options...)
	}
}

// StreamClientInterceptor returns an interceptor whose streams wait for the limiter before they are
// opened, with the zero ClientOptions. Each stream costs 1, whatever its messages. Its errors are those of
// [UnaryClientInterceptor].
func StreamClientInterceptor(limiter *rate.Limiter) grpc.StreamClientInterceptor {
	return ClientOptions{}.StreamClientInterceptor(limiter)
}

// StreamClientInterceptor is like the function of that name, with these options.
func (o ClientOptions) StreamClientInterceptor(limiter *rate.Limiter) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := o.wait(ctx, limiter); err != nil {
			return nil, err
		}
		return open(ctx, desc, conn, method, options...)
	}
}

// wait waits until a call may start.
func (o ClientOptions) wait(ctx context.Context, limiter *rate.Limiter) error {
	most := time.Duration(math.MaxInt64)
	if o.MaxWait != 0 {
		most = max(o.MaxWait, 0)
	}
	started, err := limiter.TryWait(ctx, 1, most)
	switch {
	case err == nil && started:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %w", status.Error(codes.ResourceExhausted, "the call cannot start in time"), rate.ErrTooLong)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return fmt.Errorf("%w: %w", status.Error(codes.Unavailable, "the store of the limiter fails"), err)
}
