// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// link is the connection to Redis, and whether it is worth using.
type link struct {
	option rueidis.ClientOption
	up     atomic.Bool
	client atomic.Pointer[rueidis.Client] // nil before the first connection
	down   chan error                     // gets the reason when up turns false
}

// configure takes the options over. It does not connect.
func (l *link) configure(o Options) error {
	switch {
	case o.URL != "":
		option, err := rueidis.ParseURL(o.URL)
		if err != nil {
			return errors.New("redisstore: the URL is not one of Redis") // err may tell a password
		}
		l.option = option
	case len(o.Addresses) > 0 && o.Master != "":
		l.option.InitAddress = o.Addresses
		l.option.Sentinel.MasterSet = o.Master
		l.option.Sentinel.TLSConfig = o.TLS
		l.option.Sentinel.Dialer.Timeout = time.Second
	default:
		return errors.New("redisstore: expected a URL, or the addresses of Sentinels and the name of a master")
	}
	if o.TLS != nil {
		l.option.TLSConfig = o.TLS
	}
	l.authenticate(o)
	l.option.DisableRetry = true // what is sent twice counts twice
	l.option.DisableCache = true // counters change with every call
	l.option.Dialer.Timeout = time.Second
	l.option.ConnWriteTimeout = time.Second // also for answers, and for the pings that find a dead peer
	l.down = make(chan error, 1)
	return nil
}

// authenticate has the credentials asked for. rueidis asks one function for those of
// servers and of Sentinels, and tells it only the address, so the latter get a mark.
func (l *link) authenticate(o Options) {
	if o.Credentials == nil && o.SentinelCredentials == nil {
		return
	}
	l.option.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (a rueidis.AuthCredentials, err error) {
		ask := o.Credentials
		if _, ok := c.Address.(sentinelAddr); ok {
			ask = o.SentinelCredentials
		}
		if ask == nil {
			return rueidis.AuthCredentials{Username: l.option.Username, Password: l.option.Password}, nil
		}
		a.Username, a.Password, err = ask()
		return a, err
	}
	if o.Master == "" {
		return
	}
	// Of a Dialer, rueidis hands on the one that belongs to whom it connects to.
	l.option.Sentinel.Dialer.ControlContext = func(context.Context, string, string, syscall.RawConn) error { return nil }
	l.option.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (conn net.Conn, err error) {
		if c == nil {
			conn, err = d.DialContext(ctx, "tcp", address)
		} else {
			conn, err = (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", address)
		}
		if err == nil && d.ControlContext != nil {
			conn = sentinelConn{conn}
		}
		return conn, err
	}
}

// sentinelConn is a connection to a Sentinel.
type sentinelConn struct{ net.Conn }

type sentinelAddr struct{ net.Addr }

func (c sentinelConn) RemoteAddr() net.Addr { return sentinelAddr{c.Conn.RemoteAddr()} }

// connect makes the client, if there is none yet. Later it connects by itself.
func (l *link) connect() (rueidis.Client, error) {
	if c := l.client.Load(); c != nil {
		return *c, nil
	}
	c, err := rueidis.NewClient(l.option)
	if err != nil {
		return nil, err
	}
	l.client.Store(&c)
	return c, nil
}

func (l *link) close() {
	if c := l.client.Load(); c != nil {
		(*c).Close()
	}
}

// fail notes that Redis cannot be asked. From now on no request waits for it.
func (l *link) fail(reason error) {
	if l.up.CompareAndSwap(true, false) {
		select {
		case l.down <- reason:
		default:
		}
	}
}

// call runs a script on Redis, within the time that a request may wait.
func (s *Store) call(script script, keys, args []string) ([]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	client, err := s.link.connect()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	begin := time.Now()
	reply := client.Do(ctx, client.B().Evalsha().Sha1(script.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if e, ok := rueidis.IsRedisErr(reply.Error()); ok && e.IsNoScript() {
		reply = client.Do(ctx, client.B().Eval().Script(script.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	if s.options.Observed != nil {
		s.options.Observed(time.Since(begin))
	}
	numbers, err := reply.AsIntSlice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return numbers, nil
}

// Kind names the kind of an error for metrics: "timeout", "connection", or the first
// word of what Redis answered, such as "oom" or "readonly".
func Kind(err error) string {
	var answered *rueidis.RedisError
	switch {
	case errors.Is(err, errForeign):
		return "foreign"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &answered):
		word, _, _ := strings.Cut(answered.Error(), " ")
		return strings.ToLower(word)
	}
	return "connection"
}
