// SPDX-License-Identifier: MIT

package diff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"

	"github.com/diana-limiter/diana/config"
)

// The equal entries at the ends change no line.
func TestConfigsWithEqualEnds(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	r := rand.New(rand.NewPCG(1, 2))
	shortened := 0
	for range 2000 {
		entries := randomEntries(r, 1+r.IntN(8))
		old := parse(t, strings.Join(entries, ""))
		for range 1 + r.IntN(3) {
			entries = edited(r, entries)
		}
		now := parse(t, strings.Join(entries, ""))
		before, after := differing(old.Limits, now.Limits)
		if len(before) < len(old.Limits) {
			shortened++
		}
		got, want := changedEntries(before, after, old, now), changedEntries(old.Limits, now.Limits, old, now)
		if !slices.Equal(got, want) {
			t.Fatalf("%v\n->\n%v:\ngot  %q\nwant %q", old.Limits, now.Limits, got, want)
		}
	}
	if shortened == 0 {
		t.Error("no list was shortened")
	}
}

// randomEntries returns n entries with different urls.
func randomEntries(r *rand.Rand, n int) (entries []string) {
	for _, i := range r.Perm(12)[:n] {
		entries = append(entries, randomEntry(r, i))
	}
	return entries
}

// randomEntry returns the entry of the ith url. Its rules have no name, or the name that another rule
// would get.
func randomEntry(r *rand.Rand, i int) string {
	more := [...]string{
		"bandwidth: 5k",
		"bandwidth: 7k",
		"bandwidth: 8k",
		"bandwidth: 6k, rules: [{rpu: 1}]",
		"rules: [{rpu: 1}, {rpu: 1}]",
		"rules: [{rpu: 1}, {rpu: 2, actor: ip}]",
		"rules: [{rpu: 2, actor: ip}]",
		"rules: [{rpu: 5, scope: global, overrides: {10.0.0.1: {rpu: 7}}, actor: ip}]",
		"rules: [{rpu: 5, actor: ip, except: [10.0.0.1]}]",
		"rules: [{rpu: 5}], divert: {body: x}",
		"rules: [{rpu: 5}], divert: {body: y}",
		fmt.Sprintf("rules: [{rpu: 1, name: '/%d all TB 1/second'}]", (i+1)%12),
		fmt.Sprintf("rules: [{rpu: 4, name: named %d}, {rpu: 1}]", i),
	}
	return fmt.Sprintf("- {url: /%d, %s}\n", i, more[r.IntN(len(more))])
}

// edited returns entries after a change: one is moved, removed, replaced, or takes another url.
func edited(r *rand.Rand, entries []string) []string {
	entries = slices.Clone(entries)
	i := r.IntN(len(entries))
	e := entries[i]
	switch r.IntN(4) {
	case 0:
		entries = slices.Delete(entries, i, i+1)
		return slices.Insert(entries, r.IntN(len(entries)+1), e)
	case 1:
		if len(entries) > 1 {
			return slices.Delete(entries, i, i+1)
		}
	case 2:
		var url int
		_, _ = fmt.Sscanf(e, "- {url: /%d", &url) // every entry begins so
		if url < 12 {
			entries[i] = randomEntry(r, url)
		}
	case 3:
		url := fmt.Sprintf("url: /%d,", 12+r.IntN(4))
		if !strings.Contains(strings.Join(entries, ""), url) {
			_, rest, _ := strings.Cut(e, ",")
			entries[i] = "- {" + url + rest
		}
	}
	return entries
}

// The memory for one change does not grow with the entries. AllocsPerRun allows no parallel test.
func TestOneChangeOfMany(t *testing.T) {
	var entries strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&entries, "- {url: /%d, rules: [{rpu: 1}]}\n", i)
	}
	v := words() // one, as a limiter has
	old, err := v.Parse("old", []byte(entries.String()))
	if err != nil {
		t.Fatal(err)
	}
	now, err := v.Parse("now", []byte(strings.Replace(entries.String(), "/1000, rules: [{rpu: 1", "/1000, rules: [{rpu: 2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := Configs(old, now).String(); got != `rule "/1000 all TB 1/second": rpu 1 → 2` {
		t.Error(got)
	}
	settings := testing.AllocsPerRun(5, func() { Configs(&config.Config{}, &config.Config{}) })
	if n := testing.AllocsPerRun(5, func() { Configs(old, now) }); n > settings+500 {
		t.Errorf("%v allocations for one change, %v of them for the settings", n, settings)
	}
}
