// SPDX-License-Identifier: MIT

// Package zookeeper reads a remote configuration from ZooKeeper, version 3.5 or newer. It is a
// module of its own, like the other sources that the library does not have by itself.
package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana/internal/hosts"
	"github.com/diana-limiter/diana/source"
)

const defaultPort = "2181"

// Kind is the kind of a node in ZooKeeper. The node is the path of the URL; a chroot is the
// beginning of that path. The URL can have several hosts, separated by commas. The default port
// is 2181. The Source uses TLS if Options have TLS. It sends Credentials by the scheme digest.
//
// A node that is absent means that there is no document. Put creates the node and its parents if
// they are absent. With Credentials, only their user may then read or change these nodes. Without
// Credentials, everybody may.
//
// The Source implements the protocol itself. Rejected: github.com/go-zookeeper/zk v1.0.4. It ends
// the program when a server sends a short message, allocates as many bytes as the server
// announces, and cannot be canceled.
func Kind() source.Kind {
	return source.Kind{
		Schemes: []string{"zookeeper"},
		Form:    "zookeeper://HOST:PORT/PATH",
		Check: func(u *url.URL) bool {
			return hosts.Split(u.Host, defaultPort) != nil && isNode(u.Path) &&
				u.RawQuery == "" && u.Fragment == "" && u.Opaque == ""
		},
		Open: func(o source.Options) (source.Source, error) {
			if o.Token != nil {
				return nil, errors.New("expected a username and a password, ZooKeeper has no tokens")
			}
			return &node{
				path:        o.URL.Path,
				hosts:       hosts.Split(o.URL.Host, defaultPort),
				tls:         o.TLS,
				credentials: o.Credentials,
			}, nil
		},
	}
}

// isNode reports whether ZooKeeper allows a node of this path. The root cannot hold a document.
func isNode(path string) bool {
	rest, ok := strings.CutPrefix(path, "/")
	for name := range strings.SplitSeq(rest, "/") {
		ok = ok && name != "" && name != "." && name != ".." && !strings.ContainsFunc(name, unicode.IsControl)
	}
	return ok
}

// node is a node in ZooKeeper. The Version of a document is that of conn.
type node struct {
	path        string
	hosts       []string
	tls         *tls.Config                                   // nil: no TLS
	credentials func() (username, password string, err error) // nil: none

	conn *conn // nil: none
}

const (
	// longestDial is how long a host may take to connect while others have not been tried.
	longestDial = 4 * time.Second

	// After shortestWatch to longestWatch without a change, Wait returns, because a server that
	// is faulty can lose a watch.
	shortestWatch = 20 * time.Second
	longestWatch  = 25 * time.Second

	// spread is the longest random pause after a change, because ZooKeeper tells all gateways at
	// the same moment.
	spread = 100 * time.Millisecond
)

func (n *node) Get(ctx context.Context) (d source.Document, err error) {
	err = n.use(ctx, func(c *conn) error {
		d, err = c.get(n.path)
		return err
	})
	if errors.Is(err, errTooLarge) { // any text of this size is rejected
		return source.Document{Text: make([]byte, source.MaxSize+1), Exists: true}, nil
	}
	return d, err
}

// Wait waits for the watch that Get has set. A watch ends with its connection, and on another
// connection the same Version can be another document, because ZooKeeper may have been wiped.
func (n *node) Wait(ctx context.Context, d source.Document) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case d.Version == "": // d was too large
		return source.Poll(ctx)
	case n.conn == nil || n.conn.version != d.Version:
		return nil
	}
	err := n.use(ctx, func(c *conn) error {
		return c.wait(ctx, shortestWatch+rand.N(longestWatch-shortestWatch))
	})
	if err != nil {
		return err
	}
	select {
	case <-time.After(rand.N(spread)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) Put(ctx context.Context, text []byte) error {
	return n.write(ctx, text, func(c *conn) error { return c.put(n.path, text, n.credentials != nil) })
}

// Swap uses the version of the node. A node that another program deletes and creates during a call
// has the version of the old one, so Swap can replace it.
func (n *node) Swap(ctx context.Context, old source.Document, text []byte) (swapped bool, err error) {
	err = n.write(ctx, text, func(c *conn) error {
		swapped, err = c.swap(n.path, old, text, n.credentials != nil)
		return err
	})
	return swapped && err == nil, err
}

// write calls do, and explains why ZooKeeper has closed the connection.
func (n *node) write(ctx context.Context, text []byte, do func(*conn) error) error {
	err := n.use(ctx, do)
	if size := len(setRequest(n.path, text, anyVersion)); errors.Is(err, errClosed) && size > largestByDefault {
		return fmt.Errorf("%w: the request has %d bytes, and ZooKeeper allows %d unless its "+
			"jute.maxbuffer is larger", err, size, largestByDefault)
	}
	return err
}

func (n *node) Close() error {
	n.leave()
	return nil
}

func (n *node) leave() {
	if n.conn != nil {
		n.conn.end()
		n.conn = nil
	}
}

// use calls do with a connection. After an error it closes the connection: the next call must not
// read what is left of an answer, and authenticates again.
func (n *node) use(ctx context.Context, do func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.conn == nil {
		c, err := n.connect(ctx)
		if err != nil {
			return canceled(ctx, err)
		}
		n.conn = c
	}
	stop := n.conn.until(ctx)
	err := do(n.conn)
	if !stop() || err != nil {
		n.leave()
	}
	return canceled(ctx, err)
}

// canceled returns the error of ctx if err is a consequence of it, and err otherwise.
func canceled(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// connect tries the hosts in random order, so that gateways use all members of an ensemble. Each
// host has a part of the time that is left, because a member can accept connections and not
// answer.
func (n *node) connect(ctx context.Context) (*conn, error) {
	var credentials []byte
	if n.credentials != nil {
		username, password, err := n.credentials()
		if err != nil {
			return nil, err
		}
		credentials = []byte(username + ":" + password)
	}
	var failures []string // in one line, for the log
	for i, at := range rand.Perm(len(n.hosts)) {
		c, err := n.dial(ctx, n.hosts[at], len(n.hosts)-i, credentials)
		if err == nil {
			return c, nil
		}
		failures = append(failures, fmt.Sprintf("%s: %v", n.hosts[at], err))
	}
	return nil, errors.New(strings.Join(failures, "; "))
}

// dial opens a connection to a host, which has its part of the time if left hosts are left.
func (n *node) dial(ctx context.Context, host string, left int, credentials []byte) (*conn, error) {
	if left > 1 {
		within := longestDial
		if end, ok := ctx.Deadline(); ok {
			within = min(within, time.Until(end)/time.Duration(left))
		}
		bounded, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		ctx = bounded
	}
	c, err := dial(ctx, host, n.tls, credentials)
	if err != nil && ctx.Err() != nil {
		return nil, errSilent
	}
	if o, ok := errors.AsType[*net.OpError](err); ok {
		return nil, o.Err // without the addresses
	}
	return c, err
}
