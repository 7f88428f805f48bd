// SPDX-License-Identifier: MIT

package source

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// redisKind is the kind of a string in Redis. The Source reads it every 1 to 1.8 s. By a script,
// Redis sends the string only when it has changed. A user without permission for scripts
// reads all of it each time, with STRLEN and GET. A key that is absent or has expired means
// that there is no document.
//
// The Source implements the protocol itself. Rejected: the client of package redisstore, which
// is made for throughput and trusts the server. It allocates as many bytes as the server
// announces, and ends the program when the server sends a reply without a request.
func redisKind() Kind {
	return Kind{
		Schemes: []string{"redis", "rediss"},
		Form:    "redis://HOST:PORT/DB/KEY",
		Check: func(u *url.URL) bool {
			db, key := redisPath(u)
			n, err := strconv.ParseUint(db, 10, 16)
			return u.Hostname() != "" && err == nil && strconv.FormatUint(n, 10) == db && key != "" && bare(u)
		},
		Open: func(o Options) (Source, error) {
			if o.Token != nil {
				return nil, errors.New("expected a username and a password, Redis knows no token")
			}
			k := &redisKey{dialer: redisDialer{
				host: o.URL.Hostname(), port: o.URL.Port(), credentials: o.Credentials, tls: o.TLS.Clone(),
			}}
			k.dialer.db, k.name = redisPath(o.URL)
			if k.dialer.port == "" {
				k.dialer.port = "6379"
			}
			if o.URL.Scheme == "rediss" && k.dialer.tls == nil {
				k.dialer.tls = &tls.Config{MinVersion: tls.VersionTLS12}
			}
			if c := k.dialer.tls; c != nil && c.ServerName == "" {
				c.ServerName = k.dialer.host
			}
			return k, nil
		},
	}
}

// redisPath returns the database and the key that a URL names.
func redisPath(u *url.URL) (db, key string) {
	db, key, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return db, key
}

// redisKey is a key in Redis.
type redisKey struct {
	dialer redisDialer
	name   string

	conn    *redisConn // nil: none
	scripts bool       // Redis has not rejected a script on this connection

	last Document
	sum  string // SHA-1 of last in hexadecimal; empty: there was no document
}

// redisScript reads a string.
//
//	KEYS[1] -> the key
//	ARGV[1] -> the SHA-1 of the string that the caller knows
//	ARGV[2] -> the index of the last byte to return
//
// Returns nil if the key does not exist, 1 if the caller knows the string, or else the string.
const redisScript = `
local text = redis.call('GETRANGE', KEYS[1], 0, ARGV[2])
if text == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
if redis.sha1hex(text) == ARGV[1] then
  return 1
end
return text`

func (k *redisKey) Get(ctx context.Context) (Document, error) {
	err := k.use(ctx, func(c *redisConn) error {
		reply, err := redisReply{}, error(nil)
		if k.scripts {
			reply, err = c.do("EVAL", redisScript, "1", k.name, k.sum, strconv.Itoa(MaxSize))
		}
		if _, refused := errors.AsType[redisError](err); refused || !k.scripts {
			if reply, err = c.read(k.name); err == nil {
				k.scripts = false
			}
		}
		switch {
		case err != nil:
			return err
		case reply.kind == ':' && reply.number == 1 && k.sum != "":
		case reply.kind != '$':
			return errNotRedis
		case reply.text == nil:
			k.last, k.sum = Document{}, ""
		default:
			sum := sha1.Sum(reply.text)
			k.last, k.sum = Document{Text: reply.text, Exists: true}, hex.EncodeToString(sum[:])
		}
		return nil
	})
	if err != nil {
		return Document{}, err
	}
	return k.last, nil
}

func (k *redisKey) Wait(ctx context.Context, _ Document) error { return Poll(ctx) }

func (k *redisKey) Put(ctx context.Context, text []byte) error {
	return k.use(ctx, func(c *redisConn) error {
		_, err := c.do("SET", k.name, string(text))
		return err
	})
}

// redisSwapScript replaces a string.
//
//	KEYS[1] -> the key
//	ARGV[1] -> the SHA-1 of the string that the key must have; empty: the key must not exist
//	ARGV[2] -> the new string
//	ARGV[3] -> the index of the last byte that counts for ARGV[1]
//
// Returns 1 if it has replaced the string, and 0 otherwise.
const redisSwapScript = `
local text = redis.call('GETRANGE', KEYS[1], 0, ARGV[3])
local sum = redis.sha1hex(text)
if text == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  sum = ''
end
if sum ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1`

// Swap uses a script. For a user without permission for scripts it uses a transaction.
func (k *redisKey) Swap(ctx context.Context, old Document, text []byte) (swapped bool, err error) {
	err = k.use(ctx, func(c *redisConn) (err error) {
		if k.scripts {
			sum := ""
			if old.Exists {
				of := sha1.Sum(old.Text)
				sum = hex.EncodeToString(of[:])
			}
			reply, err := c.do("EVAL", redisSwapScript, "1", k.name, sum, string(text), strconv.Itoa(MaxSize))
			if _, refused := errors.AsType[redisError](err); !refused {
				swapped = reply.kind == ':' && reply.number == 1
				return err
			}
		}
		swapped, err = c.swap(k.name, old, text)
		return err
	})
	return swapped && err == nil, err
}

func (k *redisKey) Close() error {
	k.leave()
	return nil
}

func (k *redisKey) leave() {
	if k.conn != nil {
		_ = k.conn.Close() // nothing to lose
		k.conn = nil
	}
}

// use calls do with a connection. After an error it closes the connection: the next call must
// not read what is left of a reply, and authenticates again.
func (k *redisKey) use(ctx context.Context, do func(*redisConn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if k.conn == nil {
		conn, err := k.dialer.dial(ctx)
		if err != nil {
			return cancelled(ctx, err)
		}
		k.conn, k.scripts = conn, true
	}
	stop := k.conn.until(ctx)
	err := do(k.conn)
	if !stop() || err != nil {
		k.leave()
	}
	return cancelled(ctx, err)
}

// cancelled returns the error of ctx if err is a consequence of it, and err otherwise.
func cancelled(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// redisDialer opens connections.
type redisDialer struct {
	host, port, db string
	credentials    func() (username, password string, err error) // nil: none
	tls            *tls.Config                                   // nil: no TLS
}

func (d *redisDialer) dial(ctx context.Context) (*redisConn, error) {
	var who []string
	if d.credentials != nil {
		username, password, err := d.credentials()
		if err != nil {
			return nil, err
		}
		who = []string{"AUTH", username, password}
		if username == "" { // works with Redis before 6 too
			who = []string{"AUTH", password}
		}
	}
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(d.host, d.port))
	if err != nil {
		return nil, err
	}
	c := &redisConn{Conn: plain}
	if d.tls != nil {
		c.Conn = tls.Client(plain, d.tls)
	}
	c.answers = bufio.NewReader(c.Conn)
	stop := c.until(ctx)
	if who != nil {
		_, err = c.do(who...)
		if e, ok := errors.AsType[redisError](err); ok { // its text may repeat the command
			code, _, _ := strings.Cut(string(e), " ")
			err = fmt.Errorf("the username and the password were refused: %.20s", code)
		}
	}
	if err == nil && d.db != "0" {
		_, err = c.do("SELECT", d.db)
	}
	if !stop() || err != nil {
		_ = c.Close() // nothing to lose
	}
	return c, err
}

// redisConn speaks RESP, version 2.
type redisConn struct {
	net.Conn
	answers *bufio.Reader
}

// redisError is an error reply of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }

var errNotRedis = errors.New("the answer is not one of Redis")

// redisReply is a reply of one of the kinds that our commands have.
type redisReply struct {
	kind   byte   // '+', ':', '$' or '*'
	text   []byte // of '$'; nil: the key does not exist
	number int64  // of ':'; of '*' how many replies follow, or -1 for nil
}

// until makes reads and writes fail when ctx ends. stop ends this, and returns false if ctx
// has ended before.
func (c *redisConn) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
}

// read reads a string without a script, and one byte more than MaxSize at most.
func (c *redisConn) read(key string) (redisReply, error) {
	size, err := c.do("STRLEN", key)
	switch {
	case err != nil:
		return redisReply{}, err
	case size.number > MaxSize:
		return c.do("GETRANGE", key, "0", strconv.Itoa(MaxSize))
	}
	return c.do("GET", key)
}

// swap replaces a string in a transaction. Redis does not execute it if the key has changed since
// WATCH. An error ends the connection, and with it the transaction.
func (c *redisConn) swap(key string, old Document, text []byte) (bool, error) {
	if _, err := c.do("WATCH", key); err != nil {
		return false, err
	}
	now, err := c.read(key)
	if err != nil {
		return false, err
	}
	if now.kind != '$' {
		return false, errNotRedis
	}
	if !same(Document{Text: now.text, Exists: now.text != nil}, old) {
		_, err := c.do("UNWATCH")
		return false, err
	}
	for _, command := range [][]string{{"MULTI"}, {"SET", key, string(text)}} {
		if _, err := c.do(command...); err != nil {
			return false, err
		}
	}
	done, err := c.do("EXEC")
	switch {
	case err != nil || done.kind == '*' && done.number == -1:
		return false, err
	case done.kind != '*' || done.number != 1:
		return false, errNotRedis
	}
	_, err = c.receive() // the reply to SET
	return err == nil, err
}

// do sends a command and reads the reply.
func (c *redisConn) do(args ...string) (redisReply, error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.Write(command); err != nil {
		return redisReply{}, err
	}
	return c.receive()
}

// receive reads a reply, and of a list of replies its length.
func (c *redisConn) receive() (redisReply, error) {
	line, err := c.answers.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || err == nil && len(line) < 3 {
		return redisReply{}, errNotRedis
	}
	if err != nil {
		return redisReply{}, err
	}
	reply, rest := redisReply{kind: line[0]}, string(line[1:len(line)-2])
	switch reply.kind {
	case '+':
		return reply, nil
	case '-':
		return redisReply{}, redisError(rest)
	case ':', '$', '*':
	default:
		return redisReply{}, errNotRedis
	}
	reply.number, err = strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil || reply.kind == '$' && (reply.number < -1 || reply.number > MaxSize+1):
		return redisReply{}, errNotRedis
	case reply.kind == '$' && reply.number >= 0:
		reply.text = make([]byte, reply.number+2)
		if _, err = io.ReadFull(c.answers, reply.text); err != nil {
			return redisReply{}, err
		}
		reply.text = reply.text[:reply.number]
	}
	return reply, nil
}
