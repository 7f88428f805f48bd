// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/internal/redistest"
)

// The names of systems that lines mention.
const (
	RedisRate          = "redis_rate"
	RedisRatePipelined = "redis_rate, AutoPipeline"
	Ulule              = "ulule"
	FixedWindows       = "ulule (fixed window)"
	EvalshaRueidis     = "EVALSHA each, rueidis"
)

// The limits of all systems in Redis.
var (
	ForKey = Quota{100, time.Second}
	ForAll = Quota{10_000_000, time.Second} // for all keys together, which nobody reaches
)

// Patience is how long a client waits for Redis.
const Patience = 5 * time.Second

// Ask asks for a decision by that many rules: 1 is a rule for the account, and 3 are rules for all requests,
// for the account and for the device. It does not say whether the decision is a refusal, because only its cost matters.
type Ask func(ctx context.Context, rules int, account, device string) error

// Shared is a limiter in Redis.
type Shared struct {
	Name  string
	Kind  measure.Kind
	Asker func() Ask // for one caller
	Close func()
}

// OpenShared opens a limiter with a client of its own.
type OpenShared func(context.Context, *redistest.Server) (*Shared, error)

// AllShared lists the rivals that answer under load, and the floor.
func AllShared() []OpenShared {
	return []OpenShared{
		rivalOn(RedisRate, Libraries[RedisRate]),
		rivalOn(RedisRatePipelined, pipelinedRate), // redis_rate is fastest with it
		rivalOn(FixedWindows, Libraries[Ulule]),
		openBare, // Diana uses the same client
	}
}

// charge is what one rule of a request counts.
type charge struct {
	Quota
	key string
}

func charges(rules int, account, device string) []charge {
	if rules == 1 {
		return []charge{{ForKey, account}}
	}
	return []charge{{ForAll, "all"}, {ForKey, account}, {ForKey, "device:" + device}}
}

// Decide decides by one limit for a key. All rivals decide one rule at a time.
type Decide func(ctx context.Context, q Quota, key string) (allowed bool, err error)

// ask asks rule by rule until one refuses.
func (decide Decide) ask(ctx context.Context, rules int, account, device string) error {
	for _, c := range charges(rules, account, device) {
		if allowed, err := decide(ctx, c.Quota, c.key); err != nil || !allowed {
			return err
		}
	}
	return nil
}

// Libraries opens each rival that counts in Redis.
var Libraries = map[string]func(*redis.Client) (Decide, error){
	RedisRate: func(c *redis.Client) (Decide, error) { return redisRate(c), nil },
	// ulule/limiter has only fixed windows. They are less work than token buckets.
	Ulule: func(c *redis.Client) (Decide, error) {
		store, err := ululeredis.NewStore(c)
		return func(ctx context.Context, q Quota, key string) (bool, error) {
			got, err := store.Get(ctx, key, ulule.Rate{Period: q.Per, Limit: q.N})
			return err == nil && !got.Reached, err
		}, err
	},
}

func redisRate(c redis.Cmdable) Decide {
	l := redis_rate.NewLimiter(c)
	return func(ctx context.Context, q Quota, key string) (bool, error) {
		result, err := l.Allow(ctx, key, redis_rate.Limit{Rate: int(q.N), Burst: int(q.N), Period: q.Per})
		return err == nil && result.Allowed > 0, err
	}
}

// pipelinedRate is redis_rate on go-redis' AutoPipeline, which go-redis calls experimental.
func pipelinedRate(c *redis.Client) (Decide, error) {
	p, err := c.AutoPipeline()
	return redisRate(p), err
}

// goRedisConnections is the number of connections of a go-redis client. The default, 10 for
// each core, is slower with 256 callers, and a higher number is no faster.
const goRedisConnections = 64

// rivalOn opens a library on go-redis. The rivals wait for Redis with the same timeout as Diana and do not retry, because
// otherwise the figures under load would count retries.
func rivalOn(name string, library func(*redis.Client) (Decide, error)) OpenShared {
	return func(_ context.Context, s *redistest.Server) (*Shared, error) {
		client := redis.NewClient(&redis.Options{
			Addr:         s.Addr(),
			PoolSize:     goRedisConnections,
			MaxRetries:   -1, // the default is 3, which may count a request more than once
			PoolTimeout:  Patience,
			ReadTimeout:  Patience,
			WriteTimeout: Patience,
		})
		decide, err := library(client)
		return &Shared{
			Name: name, Kind: measure.Rival,
			Asker: func() Ask { return decide.ask },
			Close: func() { _ = client.Close() }, // nothing is lost
		}, err
	}
}

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

// bare returns the key and the argument of bareScript.
func (c charge) bare() (key, step string) {
	if c.Quota == ForAll {
		return "bare:" + c.key, "0.1"
	}
	return "bare:" + c.key, "10000" // ForKey
}

// newBare returns what runs bareScript for charges, by a client that pipelines concurrent commands by itself.
func newBare(ctx context.Context, address string) (run func(context.Context, ...charge) error, stop func(), err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, DisableRetry: true, DisableCache: true, ConnWriteTimeout: Patience,
	})
	if err != nil {
		return nil, nil, err
	}
	sha, err := client.Do(ctx, client.B().ScriptLoad().Script(bareScript).Build()).ToString()
	return func(ctx context.Context, all ...charge) error {
		var commands rueidis.Commands
		for _, c := range all {
			key, step := c.bare()
			commands = append(commands, client.B().Evalsha().Sha1(sha).Numkeys(1).Key(key).Arg(step).Build())
		}
		if len(commands) == 1 { // without the slice of replies
			return client.Do(ctx, commands[0]).Error()
		}
		// Three commands in one pipeline are less than Diana does, because they are not all or nothing.
		for _, reply := range client.DoMulti(ctx, commands...) {
			if err := reply.Error(); err != nil {
				return err
			}
		}
		return nil
	}, client.Close, err
}

// openBare opens the floor.
func openBare(ctx context.Context, s *redistest.Server) (*Shared, error) {
	run, stop, err := newBare(ctx, s.Addr())
	return &Shared{Name: EvalshaRueidis, Kind: measure.Floor, Close: stop, Asker: func() Ask {
		return func(ctx context.Context, rules int, account, device string) error {
			return run(ctx, charges(rules, account, device)...)
		}
	}}, err
}
