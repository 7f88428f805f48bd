// SPDX-License-Identifier: MIT

package decoders

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	costs "github.com/diana-limiter/diana/internal/answer"
)

const (
	firstRoom     = 256 << 10
	roomFactor    = 4
	largestWindow = 8 << 20 // RFC 8878 asks decoders of zstd for as much

	// lastDistance is what a decoder of br keeps free of its window.
	lastDistance = 16
)

// growing decodes a response with a window that grows with what has been decoded, because the libraries allocate
// the window that a response declares, however short the response is.
//
// A decoder begins as if the response had declared a window of firstRoom. As long as it has decoded less than that,
// it decodes the same bytes. When it has decoded as much, or fails, another decoder with more room begins again
// with the response's first byte. So the begin of a response is decoded up to three times more, and kept
// meanwhile.
type growing struct {
	coding
	opening
	decoders *Decoders
	reserved int64

	in      *kept
	decoder io.Reader
	room    int64 // its window
	decoded int64
}

// open opens a decoder. Its Close returns its memory.
func (d *Decoders) open(c coding, r io.Reader) (io.ReadCloser, error) {
	begin, err := c.begin(r)
	if err != nil {
		return nil, err
	}
	g := &growing{coding: c, opening: begin, decoders: d, in: &kept{in: r}}
	if err := g.grow(); err != nil {
		_ = g.Close()
		return nil, err
	}
	return g, nil
}

// grow replaces the decoder by one with more room, which has decoded as much.
func (g *growing) grow() error {
	most := min(g.window, largestWindow)
	if g.room == most {
		g.decoders.tooLarge.Add(1)
		return fmt.Errorf("%w with a window of %d bytes", costs.ErrNoMemory, g.window)
	}
	room := min(max(g.room*roomFactor, firstRoom), most)
	n := room + g.beside
	if room < most {
		n += room // for what is kept: room/2 at most, but append makes room for more
	}
	if !g.decoders.reserve(n - g.reserved) {
		g.decoders.noMemory.Add(1)
		return costs.ErrNoMemory
	}
	g.reserved = n
	g.stop()
	g.room = room
	head := g.head
	if room < g.window {
		head = g.with(room)
	}
	g.in.rewind(room/2, room == most)
	var err error
	if g.decoder, err = g.open(io.MultiReader(bytes.NewReader(head), g.in), room); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, g.decoder, g.decoded)
	return err
}

func (g *growing) Read(p []byte) (n int, err error) {
	for {
		most := int64(len(p))
		if g.room < g.window {
			most = min(most, g.room-lastDistance-g.decoded)
		}
		if most > 0 || len(p) == 0 {
			n, err = g.decoder.Read(p[:most])
			g.decoded += int64(n)
			if err == nil || errors.Is(err, io.EOF) || g.in.ended || g.room == g.window {
				return n, err
			}
		}
		if err = g.grow(); n > 0 || err != nil { // a larger window may help
			return n, err
		}
	}
}

// stop ends the decoder.
func (g *growing) stop() {
	if z, ok := g.decoder.(interface{ Close() }); ok {
		z.Close()
	}
	g.decoder = nil
}

func (g *growing) Close() error {
	g.stop()
	g.in.bytes = nil
	g.decoders.reserve(-g.reserved)
	g.reserved = 0
	return nil
}

// kept is a reader that can begin again, because it keeps what it has read.
type kept struct {
	in    io.Reader
	bytes []byte
	next  int  // of bytes
	most  int  // how many bytes are kept
	last  bool // the reader does not begin again
	ended bool
}

var errKept = errors.New("no more bytes are kept")

// rewind has the reader begin again. It then keeps at most that many bytes, or none if it is the last time.
func (k *kept) rewind(most int64, last bool) { k.next, k.most, k.last = 0, int(most), last }

func (k *kept) Read(p []byte) (n int, err error) {
	if k.next < len(k.bytes) {
		n = copy(p, k.bytes[k.next:])
		if k.next += n; k.last && k.next == len(k.bytes) {
			k.bytes, k.next = nil, 0
		}
		return n, nil
	}
	if !k.last {
		if len(k.bytes) >= k.most {
			return 0, errKept
		}
		p = p[:min(len(p), k.most-len(k.bytes))]
	}
	n, err = k.in.Read(p)
	if !k.last {
		k.bytes = append(k.bytes, p[:n]...)
		k.next = len(k.bytes)
	}
	k.ended = errors.Is(err, io.EOF)
	return n, err
}
