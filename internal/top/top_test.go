// SPDX-License-Identifier: MIT

package top

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// No count is too low, or too high by more than it says, and no name is missing that is more
// frequent than the least of the list.
func TestList(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{1, 2, 10, 100, 1000} {
		names := rand.NewZipf(random, 1.1, 3, 500)
		l := New(size)
		exact := map[string]int64{}
		for range 20_000 {
			name := fmt.Sprint(names.Uint64())
			exact[name]++
			l.Add([]byte(name))
		}
		if l.Full() != (len(exact) > size) || l.Len() != min(size, len(exact)) || len(l.index) != l.Len() {
			t.Fatalf("size %d: full %v, %d of %d", size, l.Full(), l.Len(), len(exact))
		}
		most := l.Most(size)
		for i, e := range most {
			if e.N < exact[e.Name] || e.N-e.Over > exact[e.Name] || !l.Full() && e.Over > 0 {
				t.Errorf("size %d: %q was added %d times, and counts %d, %d too many", size, e.Name, exact[e.Name], e.N, e.Over)
			}
			if i > 0 && e.N > most[i-1].N {
				t.Errorf("size %d: %d is behind %d", size, e.N, most[i-1].N)
			}
		}
		for name, n := range exact {
			if l.index[name] == nil && n > most[len(most)-1].N {
				t.Errorf("size %d: %q is missing, which was added %d times", size, name, n)
			}
		}
	}
}
