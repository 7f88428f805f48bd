// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// redisConn is a conn on a real Redis.
type redisConn struct{ client rueidis.Client }

// Open returns a Store on the Redis at a URL, redis:// or rediss://. It fails if Redis
// cannot be reached now.
func Open(url string, o Options) (*Store, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	option.DisableRetry = true // what is sent twice counts twice
	option.DisableCache = true
	option.Dialer.Timeout = time.Second
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return newStore(&redisConn{client}, o), nil
}

func (c *redisConn) run(ctx context.Context, s script, keys, args []string) ([]int64, error) {
	reply := c.client.Do(ctx, c.client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if e, ok := rueidis.IsRedisErr(reply.Error()); ok && e.IsNoScript() {
		reply = c.client.Do(ctx, c.client.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	numbers, err := reply.AsIntSlice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return numbers, nil
}
