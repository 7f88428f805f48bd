// SPDX-License-Identifier: MIT

package redistest

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Error is an error that Redis returned, such as "NOSCRIPT No matching script".
type Error string

func (e Error) Error() string { return string(e) }

// Do sends a command to the server over a new connection, so that SELECT and MULTI have no later
// effect and WAIT waits for nothing; see [WaitReplica]. The reply is a string, an int64, nil, or an
// []any of these and of [Error]. An error of type [Error] is the server's. Do takes at most 5
// seconds. Any goroutine may call it.
func (s *Server) Do(args ...string) (any, error) { return s.do(5*time.Second, args...) }

// Must is Do for commands that succeed, also after some time. Otherwise the test fails.
func (s *Server) Must(args ...string) any {
	s.t.Helper()
	reply, err := s.do(testproc.Patience, args...)
	if err != nil {
		s.t.Fatalf("redistest: %s at %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return reply
}

// Info returns a section of INFO by field.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	info, err := s.info(section)
	if err != nil {
		s.t.Fatalf("redistest: INFO %s at %s: %v", section, s.Addr(), err)
	}
	return info
}

// Calls returns how often each command was called since the start or the last CONFIG RESETSTAT, by its
// name in lower case. It includes commands in scripts, but not commands that Redis refused to run.
func (s *Server) Calls() map[string]int {
	s.t.Helper()
	calls := map[string]int{}
	for name, stat := range s.Info("commandstats") {
		first, _, _ := strings.Cut(stat, ",")
		n, err := strconv.Atoi(strings.TrimPrefix(first, "calls="))
		if err != nil {
			s.t.Fatalf("redistest: INFO commandstats at %s: %s:%s", s.Addr(), name, stat)
		}
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

func (s *Server) info(section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

func (s *Server) do(limit time.Duration, args ...string) (any, error) {
	c, err := s.connect(limit)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.call(args...)
}

// connection speaks RESP, version 2.
type connection struct {
	net.Conn
	r *bufio.Reader
}

// connect returns a connection that ends after that time, with the given password.
func (s *Server) connect(limit time.Duration) (*connection, error) {
	end := time.Now().Add(limit)
	conn, err := (&net.Dialer{Deadline: end}).Dial("tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	if config := s.TLSConfig(); config != nil {
		config.ServerName = "127.0.0.1"
		conn = tls.Client(conn, config)
	}
	c := &connection{conn, bufio.NewReader(conn)}
	err = c.SetDeadline(end)
	if err == nil && s.recipe.Password != "" {
		_, err = c.call("AUTH", cmp.Or(s.recipe.Username, "default"), s.recipe.Password)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *connection) close() { _ = c.Close() } // nothing to lose

func (c *connection) call(args ...string) (any, error) {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.Write(command); err != nil {
		return nil, err
	}
	reply, err := read(c.r)
	if err != nil {
		return nil, err
	}
	if e, ok := reply.(Error); ok {
		return nil, e
	}
	return reply, nil
}

// read reads a reply.
func read(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, rest := line[:min(1, len(line))], line[min(1, len(line)):]
	switch kind {
	case "+":
		return rest, nil
	case "-":
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a reply of Redis: %q", line)
	case kind == ":":
		return n, nil
	case kind == "$" && n >= 0:
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return string(text[:n]), err
	case kind == "*" && n >= 0:
		list := make([]any, n)
		for i := range list {
			if list[i], err = read(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	case (kind == "$" || kind == "*") && n == -1:
		return nil, nil
	}
	return nil, fmt.Errorf("not a reply of Redis: %q", line)
}
