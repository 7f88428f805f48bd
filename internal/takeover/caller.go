// SPDX-License-Identifier: MIT

package takeover

import (
	"context"
	"encoding/gob"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

const (
	// The other process may take so long for a document: three seconds, and one more for each 10 MB. Meanwhile calls wait.
	leastTime      = 3 * time.Second
	bytesPerSecond = 10 << 20

	longestTime = 2 * time.Minute  // for a document to arrive, in the new process, which does not serve yet
	answerTime  = 10 * time.Second // for an answer to be sent

	// A process that is late itself must not take the other one for dead. It then misses ticks.
	tick = 10 * time.Millisecond
)

var errLate = errors.New("takeover: the other process does not answer")

// message is a call, an answer, or a note, which has no answer. The first message of the new process says that it is
// ready, and with Allowed that it wants notes.
type message struct {
	Number  uint64 // of a call and its answer; 0: a note
	Op      Op
	Charges []limit.Charge
	Note    []byte
	Allowed bool
	Err     string
}

// Caller is the connection of the old process. It is safe for concurrent use.
type Caller struct {
	conn   net.Conn
	most   time.Duration // for a call
	failed func(error)   // gets the error of each call that fails, but not that of its context
	ready  chan struct{} // closed when the other process answers calls
	lost   chan struct{} // closed when the connection has ended

	mu    sync.Mutex // guards the rest
	out   *gob.Encoder
	last  uint64
	calls map[uint64]chan message // that have no answer yet
	ended bool
}

// NewCaller returns a Caller whose calls wait until Start. The other process has the time most to answer each call. A
// Caller calls failed when a call has failed.
func NewCaller(conn net.Conn, most time.Duration, failed func(error)) *Caller {
	return &Caller{conn: conn, most: most, failed: failed, ready: make(chan struct{}), lost: make(chan struct{}), calls: map[uint64]chan message{}}
}

// Start sends the document, and then lets calls be made as soon as the other process is ready. If that wants notes,
// notes is called then. If Start or the other process fails, all calls fail.
func (c *Caller) Start(notes func(), parts ...[]byte) error {
	most := leastTime
	for _, p := range parts {
		most += time.Duration(len(p)) * time.Second / bytesPerSecond
	}
	_ = c.conn.SetDeadline(time.Now().Add(most))
	c.out = gob.NewEncoder(c.conn)
	if err := c.out.Encode(parts); err != nil {
		c.end()
		return err
	}
	go c.read(notes)
	return nil
}

// read delivers the answers.
func (c *Caller) read(notes func()) {
	defer c.end()
	in := gob.NewDecoder(c.conn)
	var first message
	if in.Decode(&first) != nil {
		return
	}
	_ = c.conn.SetDeadline(time.Time{})
	close(c.ready)
	if first.Allowed {
		notes()
	}
	for {
		var m message
		if in.Decode(&m) != nil {
			return
		}
		c.mu.Lock()
		answer := c.calls[m.Number]
		delete(c.calls, m.Number)
		c.mu.Unlock()
		if answer == nil {
			c.late(m)
			continue
		}
		answer <- m
	}
}

// end ends the connection.
func (c *Caller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		_ = c.conn.Close()
		close(c.lost)
	}
}

// Close ends the connection. Later calls fail.
func (c *Caller) Close() { c.end() }

// Call is a [Next]. It refunds what the other process allows after its time. Wait has no time limit.
func (c *Caller) Call(ctx context.Context, op Op, charges []limit.Charge) (allowed bool, err error) {
	if err = c.wait(ctx); err == nil {
		allowed, err = c.call(ctx, op, charges)
	}
	if err != nil && ctx.Err() == nil {
		c.failed(err)
	}
	return allowed, err
}

// wait waits until the other process answers calls.
func (c *Caller) wait(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.lost:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Caller) call(ctx context.Context, op Op, charges []limit.Charge) (allowed bool, err error) {
	answer := make(chan message, 1)
	number, err := c.send(message{Op: op, Charges: charges}, answer)
	if err != nil {
		return false, err
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for waited := time.Duration(0); err == nil; {
		select {
		case m := <-answer:
			if m.Err != "" {
				return false, errors.New(m.Err)
			}
			copy(charges, m.Charges)
			return m.Allowed, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.lost:
			return false, net.ErrClosed
		case <-ticks.C:
			if waited += tick; waited >= c.most && op != Wait {
				err = errLate
			}
		}
	}
	c.mu.Lock()
	_, open := c.calls[number]
	delete(c.calls, number)
	c.mu.Unlock()
	if !open {
		c.late(<-answer)
	}
	return false, err
}

// late refunds what the other process has allowed too late.
func (c *Caller) late(m message) {
	if m.Op == Take && m.Allowed && m.Err == "" {
		go func() { _, _ = c.call(context.Background(), Refund, m.Charges) }()
	}
}

// send sends a message. A call gets a number; a note has no answer.
func (c *Caller) send(m message, answer chan message) (number uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, net.ErrClosed
	}
	if answer != nil {
		c.last++
		m.Number = c.last
		c.calls[m.Number] = answer
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.most))
	if err = c.out.Encode(m); err != nil { // a part may have been sent, so that the next message cannot be read
		c.ended = true
		_ = c.conn.Close()
		close(c.lost)
	}
	return m.Number, err
}

// Note sends a note. An error means that the other process does not get it.
func (c *Caller) Note(note []byte) error {
	err := c.wait(context.Background())
	if err == nil {
		_, err = c.send(message{Note: note}, nil)
	}
	return err
}
