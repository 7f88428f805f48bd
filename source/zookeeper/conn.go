// SPDX-License-Identifier: MIT

package zookeeper

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/diana-limiter/diana/source"
)

const (
	// sessionTimeout is after how long without a message ZooKeeper ends a session. A server may
	// choose another time.
	sessionTimeout = 10 * time.Second

	// After askEvery without a message, wait sends a ping. After answerWithin without an answer
	// the connection is dead.
	askEvery     = 3 * time.Second
	answerWithin = 3 * time.Second

	// endWithin is how long end tries to tell ZooKeeper that the session has ended.
	endWithin = 100 * time.Millisecond
)

var (
	errNot      = errors.New("the answer is not one of ZooKeeper")
	errClosed   = errors.New("ZooKeeper has closed the connection")
	errSilent   = errors.New("ZooKeeper does not answer")
	errTooLarge = errors.New("the document is too large")
)

// conn is a session on a connection. Its session never moves to another connection, so a conn
// that has failed is of no more use.
type conn struct {
	net.Conn
	messages *bufio.Reader
	askEvery time.Duration // less than askEvery if the session times out early
	session  int64
	calls    int32

	version string // of the document that get has read last: the session and the transaction
	changed bool   // the watch of get has reported a change
}

// dial opens a session. credentials are nil, or user:password.
func dial(ctx context.Context, host string, secure *tls.Config, credentials []byte) (*conn, error) {
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain}
	if secure != nil {
		secure = secure.Clone()
		if secure.ServerName == "" {
			secure.ServerName, _, _ = net.SplitHostPort(host)
		}
		c.Conn = tls.Client(plain, secure)
	}
	c.messages = bufio.NewReader(c.Conn)
	stop := c.until(ctx)
	if err = c.open(); err == nil && credentials != nil {
		_, err = c.do(callAuth, authRequest("digest", credentials))
	}
	if !stop() || err != nil {
		c.end()
		return nil, errors.Join(err, ctx.Err())
	}
	return c, nil
}

// until makes reads and writes fail when ctx ends. stop ends this, and returns false if ctx has
// ended before.
func (c *conn) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
}

// open asks for a session.
func (c *conn) open() error {
	if err := c.send(sessionRequest(sessionTimeout)); err != nil {
		return err
	}
	m, err := c.receive()
	if err != nil {
		return err
	}
	timeout, session := m.session()
	if m.bad || timeout <= 0 || session == 0 {
		return errNot
	}
	c.session, c.askEvery = session, min(askEvery, timeout/3)
	return nil
}

// end closes the connection. It tries to end the session, which would otherwise stay until its
// timeout.
func (c *conn) end() {
	if c.session != 0 {
		_ = c.SetDeadline(time.Now().Add(endWithin)) // as below
		_ = c.send(request(0, callClose, nil))       // the session ends without it too
	}
	_ = c.Close() // nothing to lose
}

// send writes a message.
func (c *conn) send(m []byte) error {
	_, err := c.Write(m)
	return whether(err)
}

// receive reads a message. After os.ErrDeadlineExceeded nothing was read, and receive can be called
// again.
func (c *conn) receive() (*message, error) {
	head, err := c.messages.Peek(sizeBytes)
	if err != nil {
		return nil, whether(err)
	}
	size := sizeOf(head)
	switch {
	case size < 0 || size > largestPossible || c.session == 0 && size > largestSession:
		return nil, errNot
	case size > largestMessage:
		return nil, errTooLarge
	}
	text := make([]byte, sizeBytes+size)
	if _, err := io.ReadFull(c.messages, text); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errSilent
	} else if err != nil {
		return nil, whether(err)
	}
	return &message{rest: text[sizeBytes:]}, nil
}

// whether returns errClosed if err means that the server has closed the connection, and err
// otherwise.
func whether(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return errClosed
	}
	return err
}

// do sends a request and reads the answer. An error of the server is a code.
func (c *conn) do(call call, body []byte) (*message, error) {
	c.calls++
	number := c.calls
	if call == callAuth {
		number = numberOfAuth
	}
	if err := c.send(request(number, call, body)); err != nil {
		return nil, err
	}
	for {
		m, err := c.receive()
		if err != nil {
			return nil, err
		}
		got, failure := m.header()
		switch {
		case m.bad:
			return nil, errNot
		case got == numberOfEvent:
			c.changed = true
		case got == numberOfPing:
		case got != number:
			return nil, errNot
		case failure != 0:
			return nil, failure
		default:
			return m, nil
		}
	}
}

// get reads the document, and sets a watch for the next change. On a new connection it first waits
// until this member has all that the leader had, because a member that lags has older documents.
func (c *conn) get(path string) (source.Document, error) {
	if c.version == "" {
		if _, err := c.do(callSync, pathRequest(path)); err != nil {
			return source.Document{}, err
		}
	}
	m, err := c.do(callGet, watchRequest(path))
	if errors.Is(err, codeNoNode) {
		return c.absent(path)
	}
	if err != nil {
		return source.Document{}, err
	}
	text, transaction := m.bytes(), m.transaction()
	if m.bad {
		return source.Document{}, errNot
	}
	// An event that arrived before the answer is of a change that the answer has.
	c.changed = false
	c.version = fmt.Sprintf("%x.%x", c.session, transaction)
	return source.Document{Text: text[:min(len(text), source.MaxSize+1)], Exists: true, Version: c.version}, nil
}

// absent sets a watch for the creation of the node.
func (c *conn) absent(path string) (source.Document, error) {
	_, err := c.do(callExists, watchRequest(path))
	if err != nil && !errors.Is(err, codeNoNode) {
		return source.Document{}, err
	}
	c.changed = err == nil // the node was created in between
	c.version = fmt.Sprintf("%x.0", c.session)
	return source.Document{Version: c.version}, nil
}

// wait returns nil when the watch of get has reported a change, or after a time of longest. It
// sends pings, because a session without messages expires.
func (c *conn) wait(ctx context.Context, longest time.Duration) error {
	end := time.Now().Add(longest)
	patience, asked := c.askEvery, false
	for !c.changed && time.Now().Before(end) {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if ctx.Err() != nil { // the line above may have undone what until has set
			return ctx.Err()
		}
		m, err := c.receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !asked:
			if err := c.send(request(numberOfPing, callPing, nil)); err != nil {
				return err
			}
			patience, asked = answerWithin, true
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSilent
		case err != nil:
			return err
		}
		number, _ := m.header()
		switch {
		case m.bad || number != numberOfEvent && number != numberOfPing:
			return errNot
		case number == numberOfEvent:
			c.changed = true
		}
		patience, asked = c.askEvery, false
	}
	return c.SetReadDeadline(time.Time{})
}

// put replaces the text of a node, or creates it.
func (c *conn) put(path string, text []byte, owned bool) error {
	_, err := c.do(callSet, setRequest(path, text, anyVersion))
	if errors.Is(err, codeNoNode) {
		return c.create(path, text, owned)
	}
	return err
}

// swap replaces the text of a node whose text is old, or creates a node that is absent. It first waits
// until this member has all that the leader has. It sets no watch, and keeps that of get.
func (c *conn) swap(path string, old source.Document, text []byte, owned bool) (bool, error) {
	if _, err := c.do(callSync, pathRequest(path)); err != nil {
		return false, err
	}
	m, err := c.do(callGet, appendBool(pathRequest(path), false))
	if errors.Is(err, codeNoNode) {
		if old.Exists {
			return false, nil
		}
		return replaced(c.create(path, text, owned))
	}
	if err != nil {
		return false, err
	}
	now := m.bytes()
	m.transaction()
	version := m.version()
	switch {
	case m.bad:
		return false, errNot
	case !old.Exists || !bytes.Equal(now, old.Text):
		return false, nil
	}
	_, err = c.do(callSet, setRequest(path, text, version))
	return replaced(err)
}

// replaced reports whether a node was replaced or created, or whether err means that another program
// has changed it first.
func replaced(err error) (bool, error) {
	if errors.Is(err, codeNoNode) || errors.Is(err, codeNodeExists) || errors.Is(err, codeBadVersion) {
		return false, nil
	}
	return err == nil, err
}

// create creates a node, and the parents that are absent.
func (c *conn) create(path string, text []byte, owned bool) error {
	_, err := c.do(callCreate, createRequest(path, text, owned))
	parent := path[:strings.LastIndexByte(path, '/')]
	if !errors.Is(err, codeNoNode) || parent == "" {
		return err
	}
	if err := c.create(parent, nil, owned); err != nil && !errors.Is(err, codeNodeExists) {
		return err
	}
	_, err = c.do(callCreate, createRequest(path, text, owned))
	return err
}
