// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"
)

// dial makes a connection, and checks that Redis answers. Otherwise the client would end the
// program when a server sends something unexpected, such as a greeting. A server that hangs
// accepts connections too, and the client's first command can wait longer than a request may. So
// dial sends a command first, with the time that ctx leaves.
func dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (conn net.Conn, err error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") { // of a URL such as unix:///run/redis.sock
		network = "unix"
	}
	if config == nil {
		conn, err = d.DialContext(ctx, network, addr)
	} else {
		conn, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(d.Timeout)
	if t, ok := ctx.Deadline(); ok && t.Before(end) {
		end = t
	}
	if err = meet(conn, end); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

var (
	errNotRedis = errors.New("the server is not Redis")
	errFull     = errors.New("there are too many connections, see maxclients")
)

// meet sends a PING, which needs no permission, and waits for the answer until end.
func meet(conn net.Conn, end time.Time) error {
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 512)
	n := 0
	for n == 0 || answer[n-1] != '\n' {
		got, err := conn.Read(answer[n:])
		if n += got; err != nil {
			return err
		}
		if n == len(answer) {
			return errNotRedis
		}
	}
	switch said := string(answer[:n]); {
	case said == "-ERR max number of clients reached\r\n":
		return errFull
	case !isPong(said):
		return errNotRedis
	}
	return conn.SetDeadline(time.Time{})
}

// isPong reports whether an answer is that of Redis, even of one that is not usable now or not without
// a password.
func isPong(answer string) bool {
	if answer == "+PONG\r\n" {
		return true
	}
	word, _, _ := strings.Cut(answer, " ")
	switch word {
	case "-NOAUTH", "-NOPERM", "-LOADING", "-MASTERDOWN", "-BUSY", "-DENIED", "-MISCONF":
		return strings.Count(answer, "\n") == 1
	}
	return false
}
