// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
	"encoding/hex"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/diana-limiter/diana/internal/redistest"
)

// bareScript is about the least possible token bucket in Redis: a time and a comparison. It is
// the floor of systems that send a script for each decision. It rounds, knows only seconds, and
// returns only whether the request is allowed. Its argument is the microseconds for a token.
const bareScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
if at > now + 1000000 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000) + 1)
return 1
`

const (
	barePrefix  = "bare:"
	bareStep    = "10000" // perSecond
	bareAllStep = "0.1"   // allLimit
)

// emptyScript does nothing. It costs what any script costs.
const emptyScript = `return 1`

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// openRueidis is the floor of a client that pipelines concurrent commands by itself. Diana uses
// the same client.
func openRueidis(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	client, err := newRueidis(ctx, s)
	if err != nil {
		return nil, err
	}
	return &globalSystem{
		name: evalshaRueidis, kind: floor, three: true, close: client.Close,
		asker: func() asker { return rueidisAsker{client, shaOf(bareScript)} },
	}, nil
}

// newRueidis returns a client of the server, after loading the scripts there.
func newRueidis(ctx context.Context, s *redistest.Server) (rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, DisableRetry: true, DisableCache: true, ConnWriteTimeout: patience,
	})
	if err != nil {
		return nil, err
	}
	for _, script := range []string{bareScript, emptyScript} {
		if err := client.Do(ctx, client.B().ScriptLoad().Script(script).Build()).Error(); err != nil {
			client.Close()
			return nil, err
		}
	}
	return client, nil
}

type rueidisAsker struct {
	client rueidis.Client
	sha    string
}

func (a rueidisAsker) command(key, step string) rueidis.Completed {
	return a.client.B().Evalsha().Sha1(a.sha).Numkeys(1).Key(barePrefix + key).Arg(step).Build()
}

func (a rueidisAsker) plenty(ctx context.Context) error {
	return a.client.Do(ctx, a.command("all", bareAllStep)).Error()
}

func (a rueidisAsker) one(ctx context.Context, key string) error {
	return a.client.Do(ctx, a.command(key, bareStep)).Error()
}

// three sends three commands in one pipeline. That is less than Diana does, because they are not
// all or nothing.
func (a rueidisAsker) three(ctx context.Context, account, device string) error {
	for _, reply := range a.client.DoMulti(ctx,
		a.command("all", bareAllStep),
		a.command(account, bareStep),
		a.command("device:"+device, bareStep),
	) {
		if err := reply.Error(); err != nil {
			return err
		}
	}
	return nil
}

// goRedisConnections is the number of connections of a go-redis client. The default, 10 for
// each core, is slower with 256 callers, and a higher number is no faster.
const goRedisConnections = 64

// newGoRedis returns a client of the server. The rivals use it too.
func newGoRedis(s *redistest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:         s.Addr(),
		PoolSize:     goRedisConnections,
		MaxRetries:   -1, // the default is 3, which may count a request more than once
		PoolTimeout:  patience,
		ReadTimeout:  patience,
		WriteTimeout: patience,
	})
}

// openGoRedis is the floor of a client that sends each command separately.
func openGoRedis(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	return openGoRedisFloor(ctx, "EVALSHA each, go-redis", client, client, func() { _ = client.Close() })
}

// openGoRedisPipelined is the floor of go-redis' AutoPipeline, which go-redis calls
// experimental.
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

// three sends three commands in one pipeline. That is less than Diana does, because they are not
// all or nothing.
func (a goRedisAsker) three(ctx context.Context, account, device string) error {
	p := a.client.Pipeline()
	p.EvalSha(ctx, a.sha, []string{barePrefix + "all"}, bareAllStep)
	p.EvalSha(ctx, a.sha, []string{barePrefix + account}, bareStep)
	p.EvalSha(ctx, a.sha, []string{barePrefix + "device:" + device}, bareStep)
	_, err := p.Exec(ctx)
	return err
}
