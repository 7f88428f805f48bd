// SPDX-License-Identifier: MIT

package descriptors

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// modelled is a descriptor as a file has it. Its lists keep the order of the file, and each search
// reads them from the beginning.
type modelled struct {
	key, value string
	requests   int // of the rate_limit, which is unique; 0: none
	share      bool
	below      []*modelled
}

func (d *modelled) composite() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "_" + d.value
}

// first returns the first descriptor of a list for which is holds.
func first(list []*modelled, is func(composite string) bool) *modelled {
	for _, d := range list {
		if is(d.composite()) {
			return d
		}
	}
	return nil
}

// find returns the requests of the limit of a descriptor, and the values by which its entries are
// counted.
func find(list []*modelled, entries []Entry) (requests int, counted []string) {
	if len(entries) == 0 {
		return 0, nil
	}
	e := entries[0]
	composite, value := e.Key+"_"+e.Value, e.Value
	d := first(list, func(c string) bool { return c == composite })
	if d == nil {
		d = first(list, func(c string) bool { return strings.HasSuffix(c, "*") && strings.HasPrefix(composite, c[:len(c)-1]) })
		if d != nil && d.share {
			value = strings.TrimPrefix(d.composite(), e.Key+"_")
		}
	}
	if d == nil {
		d = first(list, func(c string) bool { return c == e.Key })
	}
	if d == nil {
		return 0, nil
	}
	if len(entries) == 1 {
		return d.requests, []string{value}
	}
	requests, counted = find(d.below, entries[1:])
	return requests, append([]string{value}, counted...)
}

// write appends the YAML of a list of descriptors.
func write(b *strings.Builder, list []*modelled, indent string) {
	b.WriteString(indent + "descriptors:\n")
	for _, d := range list {
		fmt.Fprintf(b, "%s- key: %q\n", indent, d.key)
		if d.value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, d.value)
		}
		if d.share {
			fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
		}
		if d.requests > 0 {
			fmt.Fprintf(b, "%s  rate_limit: {unit: second, requests_per_unit: %d}\n", indent, d.requests)
		}
		if len(d.below) > 0 {
			write(b, d.below, indent+"  ")
		}
	}
}

var (
	modelKeys   = []string{"a", "b", "a_b", "a*", "_", "*"}
	modelValues = []string{"", "b", "b_c", "c", "*", "b*", "b_*", "bc", "*x"}
)

// drawDescriptors draws a list of descriptors without two that have one composite key.
func drawDescriptors(t *rapid.T, depth int, requests *int) (list []*modelled) {
	for range rapid.IntRange(0, 6).Draw(t, "descriptors") {
		d := &modelled{key: rapid.SampledFrom(modelKeys).Draw(t, "key"), value: rapid.SampledFrom(modelValues).Draw(t, "value")}
		if first(list, func(c string) bool { return c == d.composite() }) != nil {
			continue
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") > 0 {
			*requests++
			d.requests = *requests
		}
		d.share = strings.HasSuffix(d.composite(), "*") && rapid.Bool().Draw(t, "share")
		if depth > 1 {
			d.below = drawDescriptors(t, depth-1, requests)
		}
		list = append(list, d)
	}
	return list
}

// Find agrees with a search that reads the lists of the file.
func TestFindAgreesWithModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requests := 0
		model := drawDescriptors(t, 3, &requests)
		var b strings.Builder
		b.WriteString("domain: d\n")
		write(&b, model, "")
		tree, err := tryParse(Options{}, b.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		for range 50 {
			var entries []Entry
			for range rapid.IntRange(0, 4).Draw(t, "entries") {
				entries = append(entries, Entry{rapid.SampledFrom(modelKeys).Draw(t, "key"), rapid.SampledFrom(modelValues).Draw(t, "value")})
			}
			want, counted := find(model, entries)
			wantKey := ""
			if want > 0 {
				for i, e := range entries {
					wantKey += fmt.Sprintf("%d:%s%d:%s", len(e.Key), e.Key, len(counted[i]), counted[i])
				}
			}
			l, key := tree.Find("d", entries, nil)
			got := 0
			if l != nil {
				got = int(l.RequestsPerUnit)
			}
			if got != want || string(key) != wantKey {
				t.Fatalf("%q: limit %d and key %q, want %d and %q, in\n%s", entries, got, key, want, wantKey, b.String())
			}
			if named := tree.MetricName("d", entries) != ""; named != (want > 0) {
				t.Fatalf("%q: limit %d, and a metric name: %v", entries, want, named)
			}
		}
	})
}
