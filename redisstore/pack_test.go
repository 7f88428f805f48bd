// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"pgregory.net/rapid"
)

// Redis reads what pack writes, and unpack reads what Redis writes.
func TestPackAsRedisDoes(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	echo := plainScript(`return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))`)
	exact := int64(1) << 53
	edges := []int64{0, 1, -1, 31, -32, -33, 127, 128, 255, 256, -128, -129, 32767, 32768, -32769, 65535, 65536,
		math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxUint32 + 1, exact, -exact}
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64Range(-exact, exact)), 0, 70000/1000).Draw(t, "numbers")
		if rapid.Bool().Draw(t, "many") {
			numbers = slices.Repeat(append(numbers, 7), 1000)
		}
		p := appendHeader(nil, len(numbers))
		for _, n := range numbers {
			p = appendNumber(p, n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		answer, err := s.link.call(ctx, echo, nil, p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(answer)
		if err != nil || !slices.Equal(got, numbers) {
			t.Fatalf("%d numbers came back as %d: %v", len(numbers), len(got), err)
		}
	})
}

// No answer makes unpack do worse than return an error.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{0x93, 1, 0xff, 0xcd, 1, 2})
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdc, 0, 1, 0xd3, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		numbers, err := unpack(b)
		if err != nil {
			return
		}
		p := appendHeader(nil, len(numbers))
		for _, n := range numbers {
			p = appendNumber(p, n)
		}
		if again, err := unpack(p); err != nil || !slices.Equal(again, numbers) {
			t.Errorf("%v and then %v, %v", numbers, again, err)
		}
	})
}
