// SPDX-License-Identifier: MIT

package fields

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestWriter compares the fields that a Writer writes with those that clients expect.
func TestWriter(t *testing.T) {
	t.Parallel()
	policies := []Policy{
		{Name: `a "b"`, Limit: 10, Unit: time.Minute},
		{Name: "每", Limit: 5, Unit: 1500 * time.Millisecond},
		{Name: "short", Limit: 5, Unit: 100 * time.Millisecond},
		{Name: "slots", Limit: 3, Unit: time.Second, Concurrent: true},
		{Name: "none", Limit: 0, Unit: time.Second},
		{Name: "no", Limit: 0, Unit: time.Millisecond},
		{Name: "100%", Limit: 100, Burst: 150, Unit: time.Second},
	}
	p := NewPolicies(len(policies), func(number int) Policy { return policies[number] })
	var w Writer
	h := http.Header{}
	w.Set(h, p)
	if len(h) != 0 {
		t.Errorf("fields without a policy: %v", h)
	}
	for range 2 { // the second response is like the first
		w.Add(p, 0, 9, time.Millisecond)
		w.Add(p, 1, 4, 1500*time.Millisecond)
		w.Add(p, 2, 4, 0)
		w.Add(p, 3, 2, 0)
		w.Add(p, 4, 0, time.Hour)
		w.Add(p, 5, 0, time.Hour)
		w.Add(p, 6, 151, time.Hour)
		w.Set(h, p)
		w.SetRetryAfter(h, 1001*time.Millisecond)
	}
	for name, want := range map[string]string{
		"RateLimit-Policy": `"a \"b\"";q=10;w=60, "%E6%AF%8F";q=5;w=2, "short";q=50;w=1, "slots";q=3;qu="concurrent-requests", "none";q=0;w=1, "no";q=0, "100%25";q=150;w=2`,
		"RateLimit":        `"a \"b\"";r=9;t=1, "%E6%AF%8F";r=4;t=2, "short";r=4, "slots";r=2, "none";r=0, "no";r=0, "100%25";r=150;t=2`,
		"Retry-After":      "2",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// TestWrittenIsRead reads what a Writer has written, for many sets of policies.
func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	const policies = 14
	p := NewPolicies(policies, func(i int) Policy {
		return Policy{Name: fmt.Sprintf(`%d \ "x"`, i), Limit: int64(100 + i), Unit: time.Hour}
	})
	var w Writer
	for set := 1; set < 1<<policies; set += 11 {
		var want []Limit
		for i := range policies {
			if set>>i&1 == 1 {
				w.Add(p, i, int64(i), time.Duration(i+1)*time.Second)
				want = append(want, Limit{Name: fmt.Sprintf(`%d \ "x"`, i), Remaining: int64(i), Reset: time.Duration(i+1) * time.Second})
			}
		}
		h := http.Header{}
		w.Set(h, p)
		got := Read(h, time.Time{})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("set %b: read %v, want %v", set, got, want)
		}
		for i, it := range list(h.Get("RateLimit-Policy")) {
			if q, ok := it.number("q"); !ok || it.name != want[i].Name || q != 100+want[i].Remaining {
				t.Fatalf("set %b: policy %d is %q with q=%d, want %v", set, i, it.name, q, want[i])
			}
		}
	}
}
