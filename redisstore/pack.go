// SPDX-License-Identifier: MIT

package redisstore

import (
	"encoding/binary"
	"errors"
)

// Numbers go to the script and back as one array in MessagePack, for which Redis has a fast reader
// and writer in C (cmsgpack).
//
// Source: https://github.com/msgpack/msgpack/blob/master/spec.md

// appendHeader begins an array of n numbers.
func appendHeader(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

// appendNumber appends an element.
func appendNumber(b []byte, n int64) []byte {
	if 0 <= n && n < 0x80 {
		return append(b, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

// appendText appends a text as an element.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(s))), s...)
}

var errNoArray = errors.New("redisstore: the script's answer is not an array of numbers")

// unpack reads an array of whole numbers.
func unpack(b []byte) ([]int64, error) {
	numbers, rest, err := unpackNumbers(b)
	if len(rest) > 0 {
		return nil, errNoArray
	}
	return numbers, err
}

// unpackHeader reads the number of elements of an array. It returns what follows.
func unpackHeader(b []byte) (n uint64, rest []byte, err error) {
	switch {
	case len(b) > 0 && b[0]&0xf0 == 0x90:
		n, b = uint64(b[0]&0x0f), b[1:]
	case len(b) > 2 && b[0] == 0xdc:
		n, b = uint64(binary.BigEndian.Uint16(b[1:])), b[3:]
	case len(b) > 4 && b[0] == 0xdd:
		n, b = uint64(binary.BigEndian.Uint32(b[1:])), b[5:]
	default:
		return 0, nil, errNoArray
	}
	if n > uint64(len(b)) { // each takes at least a byte
		return 0, nil, errNoArray
	}
	return n, b, nil
}

// unpackTexts reads an array of texts, and returns what follows.
func unpackTexts(b []byte) (texts []string, rest []byte, err error) {
	n, b, err := unpackHeader(b)
	if err != nil {
		return nil, nil, err
	}
	texts = make([]string, n)
	for i := range texts {
		var size uint64
		switch {
		case len(b) > 0 && b[0]&0xe0 == 0xa0:
			size, b = uint64(b[0]&0x1f), b[1:]
		case len(b) > 1 && b[0] == 0xd9:
			size, b = uint64(b[1]), b[2:]
		case len(b) > 2 && b[0] == 0xda:
			size, b = uint64(binary.BigEndian.Uint16(b[1:])), b[3:]
		case len(b) > 4 && b[0] == 0xdb:
			size, b = uint64(binary.BigEndian.Uint32(b[1:])), b[5:]
		default:
			return nil, nil, errNoArray
		}
		if size > uint64(len(b)) {
			return nil, nil, errNoArray
		}
		texts[i], b = string(b[:size]), b[size:]
	}
	return texts, b, nil
}

// unpackNumbers reads an array of whole numbers, and returns what follows.
func unpackNumbers(b []byte) (numbers []int64, rest []byte, err error) {
	n, b, err := unpackHeader(b)
	if err != nil {
		return nil, nil, err
	}
	numbers = make([]int64, n)
	for i := range numbers {
		if len(b) == 0 {
			return nil, nil, errNoArray
		}
		first := b[0]
		b = b[1:]
		if first < 0x80 || first >= 0xe0 {
			numbers[i] = int64(int8(first))
			continue
		}
		if first < 0xcc || first > 0xd3 {
			return nil, nil, errNoArray
		}
		size := 1 << (first & 3) // 0xcc to 0xcf without a sign, 0xd0 to 0xd3 with one
		if len(b) < size {
			return nil, nil, errNoArray
		}
		var wide [8]byte
		copy(wide[8-size:], b)
		v := binary.BigEndian.Uint64(wide[:])
		if first >= 0xd0 { // extend the sign
			shift := 64 - 8*size
			v = uint64(int64(v<<shift) >> shift)
		}
		numbers[i], b = int64(v), b[size:]
	}
	return numbers, b, nil
}
