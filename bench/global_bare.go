// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/sha1" // it is what Redis names scripts by
	"encoding/hex"

	"github.com/redis/rueidis"

	"github.com/diana-limiter/diana/internal/redistest"
)

// bareScript is about the least that a token bucket in Redis can be: a moment and a
// comparison. It is the floor of those who send a script for each decision. It rounds,
// can do seconds only, and tells nothing but whether. Its argument is the microseconds
// that a token takes.
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

// emptyScript does nothing: what it takes to have a script run at all.
const emptyScript = `return 1`

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// openRueidis is the floor of a client that puts what callers send at the same time on
// the way together by itself. It is the client that Diana uses.
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

// newRueidis returns a client of the server, which knows the scripts.
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

// three sends three commands in one go, which is less than Diana does: they are not all
// or nothing.
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
