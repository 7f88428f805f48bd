// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// connectTimeout is how long it may take to make a connection.
const connectTimeout = time.Second

// link is the connection to Redis, and whether requests may use it.
type link struct {
	option rueidis.ClientOption
	up     atomic.Bool

	credentials, sentinelCredentials func() (username, password string, err error)

	connecting sync.Mutex                     // held to make the client
	client     atomic.Pointer[rueidis.Client] // nil before the first connection
	down       chan error                     // gets the reason when up becomes false
	reason     atomic.Pointer[error]          // of the newest failure; nil: there was none

	observed func(time.Duration) // Options.Observed
}

// configure sets the options. It does not connect.
func (l *link) configure(o Options) error {
	switch {
	case o.URL != "":
		option, err := rueidis.ParseURL(o.URL)
		if err != nil {
			return errors.New("redisstore: the URL is not one of Redis") // err may contain a password
		}
		l.option = option
		l.option.ForceSingleClient = true
	case len(o.Addresses) > 0:
		l.option.InitAddress = o.Addresses
		l.option.Sentinel.MasterSet = o.Master
	default:
		return errors.New("redisstore: expected a URL, or addresses of Sentinels or of a Cluster")
	}
	if o.TLS != nil {
		l.option.TLSConfig = o.TLS
		l.option.Sentinel.TLSConfig = o.TLS
	}
	l.observed = o.Observed
	l.credentials, l.sentinelCredentials = o.Credentials, o.SentinelCredentials
	l.option.DisableRetry = true // a call that is sent twice counts twice
	l.option.DisableCache = true // counters change with every call
	// Redis 7.2 and Valkey would log CLIENT SETINFO as refused for a user with the least rights.
	l.option.ClientSetInfo = rueidis.DisableClientSetInfo
	// One connection, which the probe makes, because a request must not wait for another one.
	l.option.PipelineMultiplex = -1
	l.option.DialCtxFn = dial
	l.option.Dialer.Timeout = connectTimeout
	l.option.Sentinel.Dialer.Timeout = connectTimeout
	l.option.ConnWriteTimeout = writeTimeout(o.Timeout)
	// Events of a failover can get lost, and a master that hangs sends none.
	l.option.Sentinel.TopologyRefreshInterval = time.Second
	l.option.ClusterOption.ShardsRefreshInterval = time.Second
	l.down = make(chan error, 1)
	return nil
}

// writeTimeout is how long a connection may be silent for a store with that timeout. It also applies
// to answers, and to the pings that find a dead peer.
func writeTimeout(timeout time.Duration) time.Duration { return max(connectTimeout, 2*timeout) }

// cluster reports whether Redis is a Cluster.
func (l *link) cluster() bool {
	return !l.option.ForceSingleClient && l.option.Sentinel.MasterSet == ""
}

// connect makes the client if there is none yet. Later the client reconnects by itself.
func (l *link) connect() (rueidis.Client, error) {
	if c := l.client.Load(); c != nil {
		return *c, nil
	}
	l.connecting.Lock() // the batchers of a Cluster connect all at once
	defer l.connecting.Unlock()
	if c := l.client.Load(); c != nil {
		return *c, nil
	}
	option, err := l.authorised()
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	l.client.Store(&c)
	return c, nil
}

// authorised returns the options with credentials. The client would also send those of
// AuthCredentialsFn to Sentinels, so with Sentinels it asks for them only once.
func (l *link) authorised() (o rueidis.ClientOption, err error) {
	o = l.option
	if o.Sentinel.MasterSet == "" {
		if ask := l.credentials; ask != nil {
			o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (c rueidis.AuthCredentials, err error) {
				c.Username, c.Password, err = ask()
				return c, err
			}
		}
		return o, nil
	}
	if l.credentials != nil {
		o.Username, o.Password, err = l.credentials()
	}
	if l.sentinelCredentials != nil && err == nil {
		o.Sentinel.Username, o.Sentinel.Password, err = l.sentinelCredentials()
	}
	return o, err
}

func (l *link) close() {
	if c := l.client.Load(); c != nil {
		(*c).Close()
	}
}

// fail records that Redis cannot be asked. From now on no request waits for it.
func (l *link) fail(reason error) {
	if !errors.Is(reason, ErrUnavailable) {
		reason = fmt.Errorf("%w: %w", ErrUnavailable, reason)
	}
	l.reason.Store(&reason) // first: a request that finds Redis out of use returns it
	if l.up.CompareAndSwap(true, false) {
		select {
		case l.down <- reason:
		default:
		}
	}
}

// unavailable returns ErrUnavailable, with the reason if a call has failed.
func (l *link) unavailable() error {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return ErrUnavailable
}

// call runs a script on Redis whose answer is a string.
func (l *link) call(ctx context.Context, script *script, keys []string, args ...[]byte) ([]byte, error) {
	reply, err := l.run(ctx, script, keys, args...)
	if err != nil {
		return nil, err
	}
	answer, err := reply.AsBytes()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return answer, nil
}

// run runs a script on Redis.
func (l *link) run(ctx context.Context, script *script, keys []string, args ...[]byte) (reply rueidis.RedisResult, err error) {
	client, err := l.connect()
	if err != nil {
		return reply, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	begin := time.Now()
	var room [2]string
	texts := room[:0]
	for _, arg := range args {
		texts = append(texts, rueidis.BinaryString(arg))
	}
	reply = client.Do(ctx, client.B().Evalsha().Sha1(script.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(texts...).Build())
	if e, ok := rueidis.IsRedisErr(reply.Error()); ok && e.IsNoScript() {
		reply = client.Do(ctx, client.B().Eval().Script(script.text).Numkeys(int64(len(keys))).Key(keys...).Arg(texts...).Build())
	}
	if l.observed != nil {
		l.observed(time.Since(begin))
	}
	return reply, nil
}
