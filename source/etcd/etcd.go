// SPDX-License-Identifier: MIT

// Package etcd reads a remote configuration from etcd. It is a module of its own, so that only
// programs that use etcd depend on its client.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
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

	"github.com/diana-limiter/diana/internal/hosts"
	"github.com/diana-limiter/diana/source"
)

const defaultPort = "2379"

// Kind is the kind of a key in etcd. The key is the path of the URL without its first slash.
// The URL can have several hosts, separated by commas. The default port is 2379. The Source
// uses TLS if Options have TLS.
func Kind() source.Kind {
	return source.Kind{
		Schemes: []string{"etcd"},
		Form:    "etcd://HOST:PORT/KEY",
		Check: func(u *url.URL) bool {
			return hosts.Split(u.Host, defaultPort) != nil && strings.Trim(u.Path, "/") != "" &&
				u.RawQuery == "" && u.Fragment == "" && u.Opaque == ""
		},
		Open: func(o source.Options) (source.Source, error) {
			if o.Token != nil {
				return nil, errors.New("expected a username and a password, etcd has no tokens of this kind")
			}
			return &key{
				name:        strings.TrimPrefix(o.URL.Path, "/"),
				endpoints:   hosts.Split(o.URL.Host, defaultPort),
				tls:         o.TLS.Clone(),
				credentials: o.Credentials,
			}, nil
		},
	}
}

// key is a key in etcd. The Version of a document is the revision of etcd when it was read.
type key struct {
	name        string
	endpoints   []string
	tls         *tls.Config
	credentials func() (username, password string, err error)

	client *clientv3.Client // nil: none
}

const (
	// largestMessage is the largest message: a document and what gRPC adds to it.
	largestMessage = source.MaxSize + 16<<10

	// After askEvery without a message, Wait asks the watch for its progress. After
	// answerWithin without an answer it ends the watch. This detects a dead connection sooner
	// than the pings of gRPC.
	askEvery     = 3 * time.Second
	answerWithin = 3 * time.Second

	// spread is the longest random pause after a change, because etcd tells all gateways at
	// the same moment.
	spread = 100 * time.Millisecond
)

func (k *key) Get(ctx context.Context) (d source.Document, err error) {
	err = k.use(ctx, func(c *clientv3.Client) error {
		r, err := c.Get(ctx, k.name)
		switch {
		case tooLarge(err): // the client has dropped it; any text of this size is rejected
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

// tooLarge reports whether the client has dropped an answer because of its size. It compares
// the text of the error, because etcd uses the same code for other errors.
func tooLarge(err error) bool {
	s := status.Convert(err)
	return err != nil && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "received message larger than max")
}

// Wait watches the key from the revision of d on. It opens its own stream, because the Watch
// of the client reconnects silently, and after etcd was wiped waits for a revision that is far
// in the future.
func (k *key) Wait(ctx context.Context, d source.Document) error {
	seen, err := strconv.ParseInt(d.Version, 10, 64)
	if err != nil { // d was too large, and has no Version
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
	// A member without a leader sees no changes, so it must end the watch.
	bounded, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	silent := time.AfterFunc(answerWithin, cancel)
	defer silent.Stop()
	stream, err := etcdserverpb.NewWatchClient(c.ActiveConnection()).Watch(bounded, grpc.MaxCallRecvMsgSize(largestMessage))
	if err != nil {
		return orSilence(bounded, err)
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(k.name), StartRevision: seen + 1}
	// Recv returns the error of a Send that fails.
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
			return nil // the change is too large to receive
		case err != nil:
			return orSilence(bounded, err)
		case r.CompactRevision > 0: // etcd no longer has the changes since seen
			return nil
		case r.Canceled:
			return errors.New("the watch has ended: " + r.CancelReason)
		case len(r.Events) > 0, r.Header.GetRevision() < seen: // a smaller revision: etcd was wiped
			return nil
		}
		silent.Reset(askEvery + answerWithin)
		ask.Reset(askEvery)
	}
}

// orSilence returns err, or if ctx has ended because the watch was silent, an error that says
// so.
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

// Swap reads the key, and writes it in a transaction if its ModRevision is still the same. The
// Version of old does not serve: after etcd was wiped, the ModRevision of another text is smaller.
func (k *key) Swap(ctx context.Context, old source.Document, text []byte) (swapped bool, err error) {
	err = k.use(ctx, func(c *clientv3.Client) error {
		r, err := c.Get(ctx, k.name)
		if err != nil {
			return err
		}
		var revision int64 // of the key; etcd has 0 for a key that does not exist
		var now []byte
		if len(r.Kvs) > 0 {
			revision, now = r.Kvs[0].ModRevision, r.Kvs[0].Value
		}
		if old.Exists != (revision > 0) || !bytes.Equal(old.Text, now) {
			return nil
		}
		done, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(k.name), "=", revision)).
			Then(clientv3.OpPut(k.name, string(text))).
			Commit()
		swapped = err == nil && done.Succeeded
		return err
	})
	return swapped, err
}

func (k *key) Close() error {
	k.leave()
	return nil
}

func (k *key) leave() {
	if k.client != nil {
		_ = k.client.Close() // its error is that of its context
		k.client = nil
	}
}

// use calls do with a client. After an error it closes the client: the next client retries
// without the long pauses of this one, and authenticates again.
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

// plain returns an error of etcd or of the network without the words that gRPC adds.
func plain(err error) error {
	if _, ok := errors.AsType[rpctypes.EtcdError](err); ok || err == nil {
		return err
	}
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}

// failFast makes a call fail with the reason when no endpoint can be reached. By default the
// client retries until the call times out.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// connect makes a client, if there is none. With a password it gets a token from etcd.
func (k *key) connect(ctx context.Context) error {
	if k.client != nil {
		return nil
	}
	// The context of the client must outlive this call, unless the caller cancels the call.
	lifetime, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	config := clientv3.Config{
		Endpoints:          k.endpoints,
		TLS:                k.tls,
		Context:            lifetime,
		Logger:             zap.NewNop(),
		MaxCallRecvMsgSize: largestMessage,
		MaxCallSendMsgSize: largestMessage,
		MaxUnaryRetries:    2, // one of several endpoints may have just failed
		DialOptions:        []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
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
			_ = client.Close() // its error is that of its context
		}
		return errors.Join(err, ctx.Err())
	}
	k.client = client
	return nil
}
