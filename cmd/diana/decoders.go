// SPDX-License-Identifier: MIT

package main

import (
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// largestWindow bounds the memory of a zstd response while its cost is read. RFC 8878 asks decoders for as much.
const largestWindow = 8 << 20

// decoders decode responses for rules whose cost is known with the response. The limiter itself decodes gzip.
func decoders() map[string]func(io.Reader) (io.Reader, error) {
	return map[string]func(io.Reader) (io.Reader, error){
		"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
		"zstd": func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), // no goroutines
				zstd.WithDecoderMaxWindow(largestWindow))
		},
	}
}
