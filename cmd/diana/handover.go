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
	"slices"
	"sync"
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

	mu     sync.Mutex // guards the rest, but not done
	offers *offers    // for the successor
	closed bool
	done   chan struct{} // closed when a successor serves
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
	o, err := openOffers(path)
	if err != nil {
		return nil, err
	}
	h := &handover{path: path, logger: logger, inherited: map[string][]*os.File{}, offers: o, done: make(chan struct{})}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return h, nil
	}
	if err == nil {
		h.predecessor = conn
		err = h.inherit(conn.(*net.UnixConn))
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("--handover: no sockets from the process at %s: %w", path, err)
	}
	return h, nil
}

// inherit gets the sockets of the predecessor.
func (h *handover) inherit(conn *net.UnixConn) error {
	if err := checkPeer(conn); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	text, files, err := receiveFiles(conn)
	if err != nil {
		return err
	}
	var s sockets
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if len(files) != len(s.Addresses) {
		return fmt.Errorf("%d sockets for %d addresses", len(files), len(s.Addresses))
	}
	for i, address := range s.Addresses {
		h.inherited[address] = append(h.inherited[address], files[i])
	}
	return nil
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
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the process at %s passes no socket for %s: %w", h.path, address, err)
	}
	if !listensAt(l.Addr(), address) {
		return nil, errors.Join(l.Close(), fmt.Errorf("the process at %s passes a socket of %s for the address %s", h.path, l.Addr(), address))
	}
	return l, nil
}

// listensAt reports whether a socket is one for an address of the flags. The port 0 stands for any port.
func listensAt(socket net.Addr, address string) bool {
	got, ok := socket.(*net.TCPAddr)
	if !ok {
		return false
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if port, err := net.LookupPort("tcp", service); err != nil || port != 0 && port != got.Port {
		return false
	}
	if host == "" {
		return got.IP.IsUnspecified()
	}
	ips, err := net.LookupIP(host)
	return err == nil && slices.ContainsFunc(ips, func(ip net.IP) bool {
		return ip.Equal(got.IP) || ip.IsUnspecified() && got.IP.IsUnspecified() // Go listens at :: for 0.0.0.0
	})
}

// ready lets the predecessor stop, and a successor begin. The process serves from now on.
func (h *handover) ready(open []listening) error {
	for _, files := range h.inherited { // at addresses that the new flags do not name
		for _, f := range files {
			_ = f.Close()
		}
	}
	if err := h.offers.place(); err != nil {
		return err
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

const (
	lookEvery   = time.Second // how often a process looks whether its socket is at the path
	lookSeldom  = time.Minute // and while another one is there, because a look disturbs its process
	lostMessage = "no other process can take over"
)

// serve passes the sockets to processes that ask for them, one after another, until one of them is ready. It
// restores the socket at the path, which somebody can remove, and which a successor that fails can replace.
func (h *handover) serve(open []listening) {
	for pause, o := lookEvery, h.offers; ; {
		_ = o.SetDeadline(time.Now().Add(pause))
		conn, err := o.AcceptUnix()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return
		default:
			err = pass(conn, open)
			_ = conn.Close()
			if err == nil {
				h.close()
				close(h.done)
				return
			}
			h.logger.Warn("another process did not take over", "error", err)
		}
		if o, pause = h.restore(o, pause); o == nil {
			return
		}
	}
}

// restore returns the offers at the path, and the pause until the next look: o, or others if it restores the
// socket. It returns nil if the handover is closed.
func (h *handover) restore(o *offers, pause time.Duration) (*offers, time.Duration) {
	place := o.look()
	if place == ours {
		return o, lookEvery
	}
	if place == foreign {
		if pause == lookEvery {
			h.logger.Warn(lostMessage, "path", h.path, "reason", "another file or process is there")
		}
		return o, min(2*pause, lookSeldom)
	}
	restored, err := openOffers(h.path)
	if err == nil {
		err = restored.place()
	}
	if err != nil {
		if pause == lookEvery {
			h.logger.Warn(lostMessage, "path", h.path, "reason", err)
		}
		return o, min(2*pause, lookSeldom)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		restored.close()
		return nil, 0
	}
	o.close()
	h.offers = restored
	h.logger.Warn("the socket of --handover was lost, and is restored", "path", h.path)
	return restored, lookEvery
}

// pass passes the sockets to a process, and waits until it is ready.
func pass(conn *net.UnixConn, open []listening) error {
	if err := checkPeer(conn); err != nil {
		return err
	}
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

// close stops offering the sockets, and leaves the predecessor as it is if the process is not ready yet. A nil
// handover does nothing.
func (h *handover) close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.offers.close()
	if h.predecessor != nil {
		_ = h.predecessor.Close()
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

// abandons reports whether a signal has stopped the program before it took over. Then the process before this
// one continues, and the gateway finishes what it has accepted.
func (g *gateway) abandons(signals <-chan os.Signal) bool {
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP { // the configuration has just been read
				continue
			}
			g.logger.Info("stopped at the start")
			g.handover.close()
			g.drain(signals)
			return true
		default:
			return false
		}
	}
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
