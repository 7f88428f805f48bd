// SPDX-License-Identifier: MIT

package answer

import (
	"compress/gzip"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// Decoder returns a reader that decodes a content coding. It may read from r only in the goroutine
// that calls it or a Read of its result. If the result is an io.Closer, the Reader closes it.
type Decoder = func(r io.Reader) (io.Reader, error)

// ErrNoMemory is what a Decoder returns if it has no memory for a response.
var ErrNoMemory = errors.New("no memory for a decoder")

var errManyCodings = errors.New("the response has an unknown content coding, or several")

// decoderOf returns the decoder for the content coding of a response, or nil if it has none.
func decoderOf(h http.Header, decoders map[string]Decoder) (Decoder, error) {
	var names []string
	for name := range strings.SplitSeq(strings.Join(h["Content-Encoding"], ","), ",") {
		if name = strings.ToLower(httptext.Trim(name)); name != "" && name != "identity" {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return nil, nil
	case len(names) == 1 && decoders[names[0]] != nil:
		return decoders[names[0]], nil
	case slices.Equal(names, []string{"gzip"}), slices.Equal(names, []string{"x-gzip"}):
		return openGzip, nil
	}
	return nil, errManyCodings
}

// decoding decodes a body that arrives in pieces. Decoders pull their input, so each runs in a
// coroutine: it is paused while its input is used up. No two goroutines run at the same time.
type decoding struct {
	resume func() (struct{}, bool)
	stop   func()
	over   bool
	broken bool // the body is not in this coding; a body that is only truncated does not count
	unread bool // there was no memory for a decoder
}

// maxEmptyReads is the number of reads in a row without a byte after which a decoder is broken.
const maxEmptyReads = 100

// newDecoding returns a decoding that passes the decoded bytes to write. Its input is that of in.
func newDecoding(open Decoder, in *input, write func(p []byte)) *decoding {
	d := &decoding{}
	d.resume, d.stop = iter.Pull(func(pause func(struct{}) bool) {
		in.pause = pause
		if err := decode(open, in, write); err != nil && !in.ended {
			d.broken, d.unread = true, errors.Is(err, ErrNoMemory)
		}
	})
	return d
}

// decode decodes the whole body.
func decode(open Decoder, in *input, write func(p []byte)) error {
	r, err := open(in)
	if err != nil {
		return err
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	buf := make([]byte, 4<<10)
	for empty := 0; empty < maxEmptyReads; empty++ {
		n, err := r.Read(buf)
		if n > 0 {
			write(buf[:n])
			empty = 0
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// input is what a decoder reads. It is an io.ByteReader, so that gzip reads no byte in advance.
type input struct {
	rest  []byte
	ended bool // no more bytes arrive
	pause func(struct{}) bool
}

// wait waits for more input.
func (in *input) wait() error {
	for len(in.rest) == 0 {
		if in.ended = in.ended || !in.pause(struct{}{}); in.ended {
			return io.EOF
		}
	}
	return nil
}

func (in *input) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := in.wait(); err != nil {
		return 0, err
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *input) ReadByte() (byte, error) {
	if err := in.wait(); err != nil {
		return 0, err
	}
	c := in.rest[0]
	in.rest = in.rest[1:]
	return c, nil
}

// members reads the members of a gzip file one by one. The reader of gzip does this too, but it waits
// for the header of the next member before it returns the last bytes of one.
type members struct {
	gz   *gzip.Reader
	in   io.Reader
	over bool // the member
}

func openGzip(r io.Reader) (io.Reader, error) {
	gz, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	gz.Multistream(false)
	return &members{gz: gz, in: r}, nil
}

func (m *members) Read(p []byte) (int, error) {
	if m.over {
		if err := m.gz.Reset(m.in); err != nil {
			return 0, io.EOF // clients ignore what is not another member
		}
		m.gz.Multistream(false)
		m.over = false
	}
	n, err := m.gz.Read(p)
	if errors.Is(err, io.EOF) {
		m.over, err = true, nil
	}
	return n, err
}
