// SPDX-License-Identifier: MIT

package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Handover passes the listening sockets and the counters of a process to a later one, over a socket of the file system.
//
//	old process                                  new process
//	listens at the path
//	                    <── connects ──────────
//	                    ─── sockets ──────────>
//	                    <── asks for counters ─  with a connection for each limiter
//	passes the counters                          serves with the same sockets
//	                                             listens at the path, in place of the old one
//	                    <── ready ─────────────
//	closes its copies, and drains
//
// A process that does not know of counters does not offer them, or does not ask for them.
//
// Both processes have the same sockets, and so the same queues of connections. A connection that nobody has
// accepted stays in its queue when the old process closes its copy. If the new process fails before it is ready,
// the old one continues.
//
// Rejected: SO_REUSEPORT. Each process then has a queue of its own, and Linux resets the connections in the
// queue of a socket that is closed, unless net.ipv4.tcp_migrate_req is set.
type Handover struct {
	path   string
	logger *slog.Logger

	predecessor net.Conn              // nil: there is none
	inherited   map[string][]*os.File // sockets, by the address that the flags name
	offered     []string              // names of the limiters whose counters the predecessor passes

	mu     sync.Mutex // guards the rest, but not done
	offers *offers    // for the successor
	closed bool
	done   chan struct{} // closed when a successor serves
}

// sockets names the sockets that a message passes.
type sockets struct {
	Addresses []string `json:"addresses"`          // as the flags name them, in the order of the sockets
	Limiters  []string `json:"limiters,omitempty"` // names of the limiters whose counters can be asked for
}

// Counted is a limiter whose counters are passed on.
type Counted struct {
	Name string
	Limiter
}

// Limiter passes all its counters to that of another process over a connection, and asks that one from then on, or
// gets them. A diana.Limiter does.
type Limiter interface {
	HandOver(to net.Conn) error
	TakeOver(from net.Conn) error
}

// Socket is a listening socket, with its address as the flags name it.
type Socket struct {
	Address  string
	Listener *net.TCPListener
}

const (
	readyByte = 'r'

	// handoverTimeout is how long one process waits for the other. A start takes longer before it asks for the
	// sockets, and not after it.
	handoverTimeout = 10 * time.Second

	// countersTimeout is how long a process that has passed counters waits for the other one. Millions take a while.
	countersTimeout = 2 * time.Minute
)

// lookAgain is the pause after which a process asks again, because another one was faster.
const lookAgain = 50 * time.Millisecond

// TakeOver asks a process that listens at path for its sockets. Without such a process it returns a handover
// without sockets.
func TakeOver(path string, logger *slog.Logger) (*Handover, error) {
	o, err := openOffers(path)
	if err != nil {
		return nil, err
	}
	h := &Handover{path: path, logger: logger, inherited: map[string][]*os.File{}, offers: o, done: make(chan struct{})}
	for begin := time.Now(); ; time.Sleep(lookAgain) {
		var conn net.Conn
		conn, err = net.Dial("unix", path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return h, nil
		}
		if err == nil {
			h.predecessor = conn
			err = h.inherit(conn.(*net.UnixConn))
		}
		if !errors.Is(err, syscall.ECONNRESET) || time.Since(begin) > handoverTimeout {
			break
		}
		_ = conn.Close() // the other process has just handed over to a third one, which will be at the path
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("--handover: no sockets from the process at %s: %w", path, err)
	}
	return h, nil
}

// inherit gets the sockets of the predecessor.
func (h *Handover) inherit(conn *net.UnixConn) error {
	if err := checkPeer(conn); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	text, files, err := ReceiveFiles(conn)
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
	h.offered = s.Limiters
	for i, address := range s.Addresses {
		h.inherited[address] = append(h.inherited[address], files[i])
	}
	return nil
}

// Listen opens a listener, with the socket of the predecessor if it has one at this address. A nil handover
// has no predecessor.
func (h *Handover) Listen(address string) (net.Listener, error) {
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

// TakeCounters gets the counters of the predecessor, which then asks these limiters. The process must not serve yet.
func (h *Handover) TakeCounters(limiters []Counted) {
	var files []*os.File
	var conns []net.Conn
	limiters = slices.DeleteFunc(slices.Clone(limiters), func(l Counted) bool { return !slices.Contains(h.offered, l.Name) })
	if len(limiters) == 0 {
		return
	}
	var ask sockets
	err := func() error {
		for _, l := range limiters {
			conn, file, err := connPair()
			if err != nil {
				return err
			}
			conns, files = append(conns, conn), append(files, file)
			ask.Limiters = append(ask.Limiters, l.Name)
		}
		text, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		_ = h.predecessor.SetDeadline(time.Now().Add(handoverTimeout))
		return SendFiles(h.predecessor.(*net.UnixConn), text, files)
	}()
	for _, f := range files {
		_ = f.Close()
	}
	for i, conn := range conns {
		e := err
		if e == nil {
			e = limiters[i].TakeOver(conn)
		}
		if e != nil {
			_ = conn.Close()
			h.logger.Warn("counters of the process before this one are lost", "limiter", limiters[i].Name, "error", e)
		}
	}
}

// passCounters passes counters to a successor that has asked for them. If that fails, the limiters continue.
func (h *Handover) passCounters(limiters []Counted, text []byte, files []*os.File) error {
	var ask sockets
	if err := json.Unmarshal(text, &ask); err != nil {
		return err
	}
	if len(files) != len(ask.Limiters) {
		return fmt.Errorf("%d connections for %d limiters", len(files), len(ask.Limiters))
	}
	for i, f := range files {
		at := slices.IndexFunc(limiters, func(l Counted) bool { return l.Name == ask.Limiters[i] })
		if at < 0 {
			continue
		}
		conn, err := net.FileConn(f)
		if err == nil {
			err = limiters[at].HandOver(conn)
		}
		if err != nil {
			h.logger.Warn("another process did not take the counters over", "limiter", ask.Limiters[i], "error", err)
		}
	}
	return nil
}

// Ready lets the predecessor stop, and a successor begin. The process must serve from now on. After an error it must not,
// because the predecessor continues.
func (h *Handover) Ready(open []Socket, limiters []Counted) error {
	for _, files := range h.inherited { // at addresses that the new flags do not name
		for _, f := range files {
			_ = f.Close()
		}
	}
	if err := h.offers.place(); err != nil {
		return err
	}
	go h.serve(open, limiters)
	if h.predecessor == nil {
		return nil
	}
	_ = h.predecessor.SetDeadline(time.Now().Add(handoverTimeout))
	_, err := h.predecessor.Write([]byte{readyByte})
	_ = h.predecessor.Close()
	if err != nil {
		return fmt.Errorf("--handover: the process at %s no longer waits for this one, and continues: %w", h.path, err)
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
func (h *Handover) serve(open []Socket, limiters []Counted) {
	for pause, o := lookEvery, h.offers; ; {
		_ = o.SetDeadline(time.Now().Add(pause))
		conn, err := o.AcceptUnix()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return
		default:
			err = h.pass(conn, open, limiters)
			_ = conn.Close()
			if err == nil {
				h.Close()
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
func (h *Handover) restore(o *offers, pause time.Duration) (*offers, time.Duration) {
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

// pass passes the sockets to a process, and the counters if it asks for them, and waits until it is ready.
func (h *Handover) pass(conn *net.UnixConn, open []Socket, limiters []Counted) error {
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
		f, err := l.Listener.File()
		if err != nil {
			return err
		}
		files = append(files, f)
		s.Addresses = append(s.Addresses, l.Address)
	}
	for _, l := range limiters {
		s.Limiters = append(s.Limiters, l.Name)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := SendFiles(conn, text, files); err != nil {
		return err
	}
	for {
		text, asked, err := ReceiveFiles(conn)
		if err != nil {
			return err
		}
		if string(text) == string(readyByte) {
			return nil
		}
		err = h.passCounters(limiters, text, asked)
		for _, f := range asked {
			_ = f.Close()
		}
		if err != nil {
			return fmt.Errorf("it says %q, expected %q: %w", text, readyByte, err)
		}
		_ = conn.SetDeadline(time.Now().Add(countersTimeout))
	}
}

// Close stops offering the sockets, and leaves the predecessor as it is if the process is not ready yet. A nil
// handover does nothing.
func (h *Handover) Close() {
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

// First reports whether there is no process to take over from.
func (h *Handover) First() bool { return h.predecessor == nil }

// HandedOver is closed when another process serves. It is never closed for a nil handover.
func (h *Handover) HandedOver() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.done
}
