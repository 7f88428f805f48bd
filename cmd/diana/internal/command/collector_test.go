// SPDX-License-Identifier: MIT

package command

import "testing"

func TestCollectorPercent(t *testing.T) {
	t.Parallel()
	for scanned, want := range map[uint64]int{
		0: 800, 1 << 20: 800, 4 << 20: 800, 8 << 20: 400, 31 << 20: 103, 32 << 20: 100, 250 << 20: 100, 1 << 40: 100,
	} {
		if got := collectorPercent(scanned, usualPercent); got != want {
			t.Errorf("%d bytes: %d, want %d", scanned, got, want)
		}
	}
}
