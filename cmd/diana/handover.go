// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// handover passes the listening sockets of a process to a later one, over a socket of the file system.
//
//	old process                                  new process
//	listens at the path
//	                    <── connects ──────────
//	                    ─── sockets ──────────>  serves with the same sockets
//	                                             listens at the path, in place of the old one
//	                    <── ready ─────────────
//	closes its copies, and drains
//
// Both processes have the same sockets, and so the same queues of connections. A connection that nobody has
// accepted stays in its queue when the old process closes its copy. If the new process fails before it is ready,
// the old one continues.
//
// Rejected: SO_REUSEPORT. Each process then has a queue of its own, and Linux resets the connections in the
// queue of a socket that is closed, unless net.ipv4.tcp_migrate_req is set.
type handover struct {
	path   string
	logger *slog.Logger

	predecessor net.Conn              // nil: there is none
	inherited   map[string][]*os.File // sockets, by the address that the flags name

	offers *net.UnixListener // for the successor
	done   chan struct{}     // closed when a successor serves
}

// sockets names the sockets that a message passes.
type sockets struct {
	Addresses []string `json:"addresses"` // as the flags name them, in the order of the sockets
}

const (
	readyByte = 'r'

	// handoverTimeout is how long one process waits for the other. A start takes longer before it asks for the
	// sockets, and not after it.
	handoverTimeout = 10 * time.Second
)

// takeOver asks a process that listens at path for its sockets. Without such a process it returns a handover
// without sockets.
func takeOver(path string, logger *slog.Logger) (*handover, error) {
	h := &handover{path: path, logger: logger, inherited: map[string][]*os.File{}, done: make(chan struct{})}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--handover: %w, expected the socket of another diana serve, or no file", err)
	}
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	text, files, err := receiveFiles(conn.(*net.UnixConn))
	var s sockets
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && len(files) != len(s.Addresses) {
		err = fmt.Errorf("%d sockets for %d addresses", len(files), len(s.Addresses))
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("--handover: no sockets from the process at %s: %w", path, err)
	}
	h.predecessor = conn
	for i, address := range s.Addresses {
		h.inherited[address] = append(h.inherited[address], files[i])
	}
	return h, nil
}

// listen opens a listener, with the socket of the predecessor if it has one at this address. A nil handover
// has no predecessor.
func (h *handover) listen(address string) (net.Listener, error) {
	if h == nil || len(h.inherited[address]) == 0 {
		return net.Listen("tcp", address)
	}
	file := h.inherited[address][0]
	h.inherited[address] = h.inherited[address][1:]
	defer file.Close()
	return net.FileListener(file)
}

// ready lets the predecessor stop, and a successor begin. The process serves from now on.
func (h *handover) ready(open []listening) error {
	for _, files := range h.inherited { // at addresses that the new flags do not name
		for _, f := range files {
			_ = f.Close()
		}
	}
	if err := h.offer(); err != nil {
		return fmt.Errorf("--handover: %w", err)
	}
	go h.serve(open)
	if h.predecessor == nil {
		return nil
	}
	_, err := h.predecessor.Write([]byte{readyByte})
	_ = h.predecessor.Close()
	if err != nil {
		h.logger.Warn("the process before this one may still serve", "path", h.path, "error", err)
		return nil
	}
	h.logger.Info("took over from another process", "path", h.path)
	return nil
}

// offer listens at the path. It replaces the socket of a predecessor in one step, so that there is always one.
// Only this user can connect.
func (h *handover) offer() error {
	next := fmt.Sprintf("%s.%d", h.path, os.Getpid())
	_ = os.Remove(next) // of a process that was killed
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // the path can be the successor's by then
	if err = os.Chmod(next, 0o600); err == nil {
		err = os.Rename(next, h.path)
	}
	if err != nil {
		return errors.Join(err, l.Close(), os.Remove(next))
	}
	h.offers = l
	return nil
}

// serve passes the sockets to processes that ask for them, one after another, until one of them is ready.
func (h *handover) serve(open []listening) {
	for {
		conn, err := h.offers.AcceptUnix()
		if err != nil {
			return
		}
		err = pass(conn, open)
		_ = conn.Close()
		if err == nil {
			_ = h.offers.Close()
			close(h.done)
			return
		}
		h.logger.Warn("another process did not take over", "error", err)
	}
}

// pass passes the sockets to a process, and waits until it is ready.
func pass(conn *net.UnixConn, open []listening) error {
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	var s sockets
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, l := range open {
		f, err := l.socket.File()
		if err != nil {
			return err
		}
		files = append(files, f)
		s.Addresses = append(s.Addresses, l.address)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := sendFiles(conn, text, files); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := conn.Read(answer[:]); err != nil {
		return err
	}
	if answer[0] != readyByte {
		return fmt.Errorf("it says %q, expected %q", answer[0], readyByte)
	}
	return nil
}

// close stops offering the sockets. A nil handover offers none.
func (h *handover) close() {
	if h != nil && h.offers != nil {
		_ = h.offers.Close()
	}
}

// handedOver is closed when another process serves. It is never closed for a nil handover.
func (h *handover) handedOver() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.done
}

// leaveConnections is a filter that ends each connection with its next answer after the process has handed
// over. A client that knows this opens the next connection, which the other process accepts. If the gateway
// closed connections that look idle, it would lose the requests that are on their way.
func (g *gateway) leaveConnections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.leaving.Load() && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY over HTTP/2
		}
		next.ServeHTTP(w, r)
	})
}

// linger is how long a process that has handed over waits for the next request of each connection.
const linger = 2 * time.Second

// leave ends the process after it has handed over. The other process accepts all connections from now on, also
// those of administrators.
func (g *gateway) leave(signals <-chan os.Signal) {
	g.logger.Info("handed over to another process")
	g.leaving.Store(true)
	for _, l := range g.open {
		_ = l.Close()
	}
	select {
	case <-time.After(linger):
	case <-signals: // SIGHUP too, because there is nothing to reload any more
	}
	g.drain(signals)
}
