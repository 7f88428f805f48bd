// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/diana-limiter/diana/internal/redistest"
)

// goRedisConnections is how many connections a client of go-redis has. Its default, 10
// for each core, is somewhat slower with 256 callers; more than these are no faster.
const goRedisConnections = 64

// newGoRedis returns a client of the server, as go-redis is used by the rivals.
func newGoRedis(s *redistest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:         s.Addr(),
		PoolSize:     goRedisConnections,
		MaxRetries:   -1, // 3 by default, and then a request may count more than once
		PoolTimeout:  patience,
		ReadTimeout:  patience,
		WriteTimeout: patience,
	})
}

// openGoRedis is the floor of a client that sends each command by itself.
func openGoRedis(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	return openGoRedisFloor(ctx, "EVALSHA each, go-redis", client, client, func() { _ = client.Close() })
}

// openGoRedisPipelined is the floor of a client that gathers what callers send at the
// same time. go-redis calls that experimental.
func openGoRedisPipelined(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return openGoRedisFloor(ctx, "EVALSHA each, go-redis AutoPipeline", client, pipeline, func() { _ = client.Close() })
}

func openGoRedisFloor(ctx context.Context, name string, client *redis.Client, face redis.Cmdable, stop func()) (*globalSystem, error) {
	sha, err := client.ScriptLoad(ctx, bareScript).Result()
	if err != nil {
		return nil, err
	}
	a := goRedisAsker{client, face, sha}
	return &globalSystem{
		name: name, kind: floor, three: face == redis.Cmdable(client), close: stop,
		asker: func() asker { return a },
	}, nil
}

type goRedisAsker struct {
	client *redis.Client
	face   redis.Cmdable
	sha    string
}

func (a goRedisAsker) plenty(ctx context.Context) error {
	return a.face.EvalSha(ctx, a.sha, []string{barePrefix + "all"}, bareAllStep).Err()
}

func (a goRedisAsker) one(ctx context.Context, key string) error {
	return a.face.EvalSha(ctx, a.sha, []string{barePrefix + key}, bareStep).Err()
}

// three sends three commands in one go, which is less than Diana does: they are not all
// or nothing.
func (a goRedisAsker) three(ctx context.Context, account, device string) error {
	p := a.client.Pipeline()
	p.EvalSha(ctx, a.sha, []string{barePrefix + "all"}, bareAllStep)
	p.EvalSha(ctx, a.sha, []string{barePrefix + account}, bareStep)
	p.EvalSha(ctx, a.sha, []string{barePrefix + "device:" + device}, bareStep)
	_, err := p.Exec(ctx)
	return err
}
