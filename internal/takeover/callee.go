// SPDX-License-Identifier: MIT

package takeover

import (
	"context"
	"encoding/gob"
	"net"
	"sync"
	"time"
)

// Callee is the connection of the new process.
type Callee struct {
	conn net.Conn
	in   *gob.Decoder
}

// NewCallee reads the document.
func NewCallee(conn net.Conn) (c *Callee, parts [][]byte, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(longestTime))
	c = &Callee{conn, gob.NewDecoder(conn)}
	err = c.in.Decode(&parts)
	_ = conn.SetReadDeadline(time.Time{})
	return c, parts, err
}

// Serve answers the calls of the old process until that ends. note gets the notes in their order; nil: none are wanted.
func (c *Callee) Serve(next Next, note func([]byte)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	out := gob.NewEncoder(c.conn)
	var sending sync.Mutex
	send := func(m message) {
		sending.Lock()
		defer sending.Unlock()
		_ = c.conn.SetWriteDeadline(time.Now().Add(answerTime))
		if out.Encode(m) != nil {
			_ = c.conn.Close() // so that the old process does not wait for the answer
		}
	}
	send(message{Allowed: note != nil})
	for {
		var m message
		if c.in.Decode(&m) != nil {
			return
		}
		if m.Number == 0 {
			if note != nil {
				note(m.Note)
			}
			continue
		}
		running.Go(func() { // a call may wait
			var err error
			if m.Allowed, err = next(ctx, m.Op, m.Charges); err != nil {
				m.Err = err.Error()
			}
			send(m)
		})
	}
}

// Close ends the connection.
func (c *Callee) Close() error { return c.conn.Close() }
