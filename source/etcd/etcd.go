// SPDX-License-Identifier: MIT

// Package etcd follows a configuration in etcd. It is a module of its own, so that only who
// uses etcd gets its client.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/source"
)

// Kind is the kind of a key in etcd, which is the URL's path without the slash in front.
// HOST:PORT can be several, separated by commas; those without a port have 2379. It speaks
// TLS if Options have that.
func Kind() source.Kind {
	return source.Kind{
		Schemes: []string{"etcd"},
		Form:    "etcd://HOST:PORT/KEY",
		Check: func(u *url.URL) bool {
			return endpoints(u.Host) != nil && strings.Trim(u.Path, "/") != "" &&
				u.RawQuery == "" && u.Fragment == "" && u.Opaque == ""
		},
		Open: func(o source.Options) (source.Source, error) {
			if o.Token != nil {
				return nil, errors.New("expected a username and a password, etcd is given no token")
			}
			return &key{
				name:        strings.TrimPrefix(o.URL.Path, "/"),
				endpoints:   endpoints(o.URL.Host),
				tls:         o.TLS.Clone(),
				credentials: o.Credentials,
			}, nil
		},
	}
}

// endpoints returns the hosts with their ports, or nil if one of them is none.
func endpoints(hosts string) []string {
	var list []string
	for host := range strings.SplitSeq(hosts, ",") {
		u := url.URL{Host: host}
		port := u.Port()
		if port == "" {
			port = "2379"
		}
		if u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "/@") {
			return nil
		}
		list = append(list, net.JoinHostPort(u.Hostname(), port))
	}
	return list
}

// key is a key of etcd. The Version of its documents is the revision of all of etcd when
// they were read.
type key struct {
	name        string
	endpoints   []string
	tls         *tls.Config
	credentials func() (username, password string, err error)

	client *clientv3.Client // nil: none
}

const (
	// largestMessage is what an answer may have around a document.
	largestMessage = source.MaxSize + 16<<10

	// A watch that says nothing is asked after askEvery how far it is, and is given up when
	// it has not answered after answerWithin. That is how long a connection can be dead
	// before it is noticed; gRPC's own pings take longer.
	askEvery     = 3 * time.Second
	answerWithin = 3 * time.Second

	// spread is what gateways wait at random that have heard of a change all at once.
	spread = 100 * time.Millisecond
)

func (k *key) Get(ctx context.Context) (d source.Document, err error) {
	err = k.use(ctx, func(c *clientv3.Client) error {
		r, err := c.Get(ctx, k.name)
		switch {
		case tooLarge(err): // so it was not received, and nobody will read it
			d = source.Document{Text: make([]byte, source.MaxSize+1), Exists: true}
			return nil
		case err != nil:
			return err
		}
		d.Version = strconv.FormatInt(r.Header.Revision, 10)
		if len(r.Kvs) > 0 {
			text := r.Kvs[0].Value
			d.Text, d.Exists = text[:min(len(text), source.MaxSize+1)], true
		}
		return nil
	})
	return d, err
}

// tooLarge reports whether an answer was larger than we let it be. It is the client that
// says so: etcd uses the same code for other things, but other words.
func tooLarge(err error) bool {
	s := status.Convert(err)
	return err != nil && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "received message larger than max")
}

// Wait watches the key from what Get has seen. It does so over a stream of its own: the
// client's Watch makes up for connections that are lost, without a word, and after etcd was
// wiped waits for a revision that is far in the future.
func (k *key) Wait(ctx context.Context, d source.Document) error {
	seen, err := strconv.ParseInt(d.Version, 10, 64)
	if err != nil { // it was too large
		return source.Poll(ctx)
	}
	if err := k.use(ctx, func(c *clientv3.Client) error { return k.watch(ctx, c, seen) }); err != nil {
		return err
	}
	select {
	case <-time.After(rand.N(spread)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *key) watch(ctx context.Context, c *clientv3.Client, seen int64) error {
	// A member that has lost the others hears of nothing. So it ends the watch.
	bounded, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	silent := time.AfterFunc(answerWithin, cancel)
	defer silent.Stop()
	stream, err := etcdserverpb.NewWatchClient(c.ActiveConnection()).Watch(bounded, grpc.MaxCallRecvMsgSize(largestMessage))
	if err != nil {
		return orSilence(bounded, err)
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(k.name), StartRevision: seen + 1}
	// What goes wrong with sending, Recv says.
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}})
	ask := time.AfterFunc(askEvery, func() {
		progress := &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}
		_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: progress})
	})
	defer ask.Stop()
	for {
		r, err := stream.Recv()
		switch {
		case err != nil && tooLarge(err):
			return nil // and it is a change
		case err != nil:
			return orSilence(bounded, err)
		case r.CompactRevision > 0: // what came since then is forgotten
			return nil
		case r.Canceled:
			return errors.New("the watch has ended: " + r.CancelReason)
		case len(r.Events) > 0, r.Header.GetRevision() < seen: // the latter: it began anew
			return nil
		}
		silent.Reset(askEvery + answerWithin)
		ask.Reset(askEvery)
	}
}

// orSilence returns err, or if that comes of giving up a watch, what there was to hear.
func orSilence(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("the watch does not answer")
	}
	return err
}

func (k *key) Put(ctx context.Context, text []byte) error {
	return k.use(ctx, func(c *clientv3.Client) error {
		_, err := c.Put(ctx, k.name, string(text))
		return err
	})
}

func (k *key) Close() error {
	k.leave()
	return nil
}

func (k *key) leave() {
	if k.client != nil {
		_ = k.client.Close() // it says that it has been closed
		k.client = nil
	}
}

// use has something done with a client. One that anything went wrong with is not used
// again: the next begins without the pauses that this one's connections have grown to, and
// says anew who we are.
func (k *key) use(ctx context.Context, do func(*clientv3.Client) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := k.connect(ctx)
	if err == nil {
		err = do(k.client)
	}
	if err != nil {
		k.leave()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return plain(err)
}

// plain returns an error in the words of etcd or of the network, without those of gRPC.
func plain(err error) error {
	if _, ok := errors.AsType[rpctypes.EtcdError](err); ok || err == nil {
		return err
	}
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}

// atOnce has a call fail when nobody can be reached, and so with the reason. The client would
// try again until the call's time is over.
func atOnce(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// connect makes a client, if there is none. With a password it asks etcd for a token.
func (k *key) connect(ctx context.Context) error {
	if k.client != nil {
		return nil
	}
	// The client's own context must outlive this call, but not a call that is given up.
	lifetime, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	config := clientv3.Config{
		Endpoints:          k.endpoints,
		TLS:                k.tls,
		Context:            lifetime,
		Logger:             zap.NewNop(),
		MaxCallRecvMsgSize: largestMessage,
		MaxCallSendMsgSize: largestMessage,
		MaxUnaryRetries:    2, // so that of several endpoints one may have just gone
		DialOptions:        []grpc.DialOption{grpc.WithChainUnaryInterceptor(atOnce)},
	}
	if k.credentials != nil {
		var err error
		if config.Username, config.Password, err = k.credentials(); err != nil {
			end()
			return err
		}
	}
	client, err := clientv3.New(config)
	if !stop() || err != nil {
		end()
		if client != nil {
			_ = client.Close() // it says that it has been closed
		}
		return errors.Join(err, ctx.Err())
	}
	k.client = client
	return nil
}
