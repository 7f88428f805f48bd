// SPDX-License-Identifier: MIT

package decoders

import (
	"errors"
	"io"
	"math"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// coding is a content coding whose decoder needs a window of what it has decoded.
type coding struct {
	// beside is the most that a decoder needs beside its window. In br, a response chooses the size of its tables.
	beside int64

	// begin reads the first bytes of a response, which declare its window.
	begin func(r io.Reader) (opening, error)

	// open returns a decoder that never has a larger window.
	open func(r io.Reader, window int64) (io.Reader, error)
}

// opening is the begin of a response in a coding.
type opening struct {
	head   []byte
	window int64 // that head declares

	// with returns a head that declares a smaller window, a power of two of at least firstRoom.
	with func(window int64) []byte
}

var brotliCoding = coding{
	beside: 3 << 20, // 256 tables each for literals, commands and distances
	begin:  beginBrotli,
	open:   func(r io.Reader, _ int64) (io.Reader, error) { return brotli.NewReader(r), nil },
}

// beginBrotli reads the first byte, whose lower bits are the size of the window: RFC 7932, section 9.1.
func beginBrotli(r io.Reader) (opening, error) {
	head := make([]byte, 1)
	if _, err := io.ReadFull(r, head); err != nil {
		return opening{}, err
	}
	size, low, high := 16, int(head[0]>>1&7), int(head[0]>>4&7)
	switch {
	case head[0]&1 == 0:
	case low > 0:
		size = 17 + low
	case high == 1:
		return opening{}, errors.New("a window that RFC 7932 does not know")
	case high > 0:
		size = 8 + high
	default:
		size = 17
	}
	return opening{head, 1 << size, func(window int64) []byte { // all sizes from 18 have four bits
		return []byte{head[0]&^0xf | byte(bits.Len64(uint64(window))-18)<<1 | 1}
	}}, nil
}

var zstdCoding = coding{
	beside: 640 << 10, // blocks of 128 KiB: two at the window, one before and one behind decoding, and tables
	begin:  beginZstd,
	open: func(r io.Reader, window int64) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), // no goroutines
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(window)))
	},
}

// beginZstd reads the header of the first frame. The windows of later frames may not be larger.
func beginZstd(r io.Reader) (opening, error) {
	var head []byte
	next := make([]byte, 1)
	for {
		if _, err := io.ReadFull(r, next); err != nil {
			return opening{}, err
		}
		head = append(head, next[0])
		var h zstd.Header
		switch err := h.Decode(head); {
		case errors.Is(err, io.ErrUnexpectedEOF):
			continue
		case err != nil:
			return opening{}, err
		case h.Skippable: // another frame follows, whose window is not known
			return opening{head, largestWindow, func(int64) []byte { return head }}, nil
		}
		window := h.WindowSize
		if h.SingleSegment { // the window is the content
			window = max(h.FrameContentSize, zstd.MinWindowSize)
		}
		return opening{head, int64(min(window, math.MaxInt64)), func(window int64) []byte {
			smaller := zstd.Header{WindowSize: uint64(window), DictionaryID: h.DictionaryID, HasCheckSum: h.HasCheckSum}
			b, _ := smaller.AppendTo(nil) // which cannot fail
			return b
		}}, nil
	}
}
