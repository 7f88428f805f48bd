// SPDX-License-Identifier: MIT

package config

import "testing"

func BenchmarkParse(b *testing.B) {
	text := manyEntries(10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("x", text); err != nil {
			b.Fatal(err)
		}
	}
}
