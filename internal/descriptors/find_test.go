// SPDX-License-Identifier: MIT

package descriptors

import (
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
)

// shop has every way to match, and levels whose composite keys are alike.
const shop = `
domain: shop
descriptors:
  - key: tier
    value: gold
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 1}
      - key: user
        value: ann
        rate_limit: {unit: second, requests_per_unit: 2}
  - key: client
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: client
    value: cron
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: client
    value: staff
  - key: order
    value: new
    rate_limit: {unit: day, requests_per_unit: 5}
    descriptors:
      - key: item
        value: book
        rate_limit: {unit: day, requests_per_unit: 6}
  - key: health
    rate_limit: {unlimited: true}
  - key: path
    value: /static/*
    rate_limit: {unit: hour, requests_per_unit: 7}
  - key: path
    value: /static/css*
    rate_limit: {unit: hour, requests_per_unit: 8}
  - key: path
    value: /static/logo
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: path
    value: /a*b
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 11}
  - key: a_b
    rate_limit: {unit: week, requests_per_unit: 12}
  - key: a
    value: c
    rate_limit: {unit: week, requests_per_unit: 13}
  - key: head*
    rate_limit: {unit: month, requests_per_unit: 14}
  - key: empty_
    rate_limit: {unit: year, requests_per_unit: 15}
  - key: dead
    value: end*
    descriptors:
      - {key: below, rate_limit: {unit: year, requests_per_unit: 16}}
  - key: dead
    descriptors:
      - {key: other, rate_limit: {unit: year, requests_per_unit: 17}}
`

// shared has descriptors with share_threshold.
const shared = `
domain: shared
descriptors:
  - key: file
    value: img/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: file
    value: img/logo
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: dir
    value: top/*
    share_threshold: true
    descriptors:
      - key: dir
        value: sub/*
        share_threshold: true
        rate_limit: {unit: minute, requests_per_unit: 3}
  - key: user
    value: u*
    share_threshold: true
    descriptors:
      - key: role
        value: r*
        descriptors:
          - {key: verb, rate_limit: {unit: minute, requests_per_unit: 4}}
  - key: wide*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 5}
`

func parse(t testing.TB, texts ...string) *Tree {
	t.Helper()
	tree, err := tryParse(Options{}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// tryParse parses texts as the files a.yaml, b.yaml and so on.
func tryParse(o Options, texts ...string) (*Tree, error) {
	var files []File
	for i, text := range texts {
		files = append(files, File{string(rune('a'+i)) + ".yaml", []byte(text)})
	}
	return Parse(files, config.DefaultVocabulary(), o)
}

// entriesOf reads "key=value, key=value".
func entriesOf(text string) (entries []Entry) {
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ", ") {
		key, value, _ := strings.Cut(one, "=")
		entries = append(entries, Entry{key, value})
	}
	return entries
}

// The cases of the tests of envoyproxy/ratelimit, and more, on files of our own.
func TestFind(t *testing.T) {
	t.Parallel()
	tree := parse(t, shop, shared)
	for _, row := range []struct {
		domain, entries string
		want            uint32 // requests per unit; 0: no limit
		key             string // of the counter; empty: that of the entries
	}{
		{domain: "shop"},
		{domain: "none", entries: "client=x"},
		{domain: "", entries: "client=x"},
		{domain: "shop", entries: "none=x"},

		// The depth must match.
		{domain: "shop", entries: "tier=gold"},
		{domain: "shop", entries: "tier=gold, user=bob", want: 1},
		{domain: "shop", entries: "tier=gold, user=ann", want: 2},
		{domain: "shop", entries: "tier=gold, user=", want: 1},
		{domain: "shop", entries: "tier=gold, user=ann, more=x"},
		{domain: "shop", entries: "tier=gold, none=x"},
		{domain: "shop", entries: "tier=silver, user=ann"},
		{domain: "shop", entries: "user=ann"},
		{domain: "shop", entries: "user=ann, tier=gold"},

		// A value goes before a key alone, also a value without a limit.
		{domain: "shop", entries: "client=x", want: 3},
		{domain: "shop", entries: "client=cron", want: 4},
		{domain: "shop", entries: "client=staff"},
		{domain: "shop", entries: "client=cron, client=cron"},
		{domain: "shop", entries: "CLIENT=cron"},

		// A descriptor can have a limit and descriptors below it.
		{domain: "shop", entries: "order=new", want: 5},
		{domain: "shop", entries: "order=new, item=book", want: 6},
		{domain: "shop", entries: "order=new, item=pen"},
		{domain: "shop", entries: "order=old"},

		// The first wildcard of the file counts, after the value and before the key alone.
		{domain: "shop", entries: "path=/static/", want: 7},
		{domain: "shop", entries: "path=/static/x", want: 7},
		{domain: "shop", entries: "path=/static/css/x", want: 7},
		{domain: "shop", entries: "path=/static/logo", want: 9},
		{domain: "shop", entries: "path=/static", want: 11},
		{domain: "shop", entries: "path=/ab", want: 11},
		{domain: "shop", entries: "path=/a*b", want: 10},
		{domain: "shop", entries: "path=/static/*", want: 7},

		// A wildcard that matches is the only way, also if it leads nowhere.
		{domain: "shop", entries: "dead=end, below=x", want: 16},
		{domain: "shop", entries: "dead=end, other=x"},
		{domain: "shop", entries: "dead=x, other=x", want: 17},

		// A composite key does not tell a key from a value.
		{domain: "shop", entries: "a_b=x", want: 12},
		{domain: "shop", entries: "a=b", want: 12},
		{domain: "shop", entries: "a=c", want: 13},
		{domain: "shop", entries: "a_c=x", want: 13},
		{domain: "shop", entries: "header=x", want: 14},
		{domain: "shop", entries: "head=", want: 14},
		{domain: "shop", entries: "hea=d"},
		{domain: "shop", entries: "empty=", want: 15},
		{domain: "shop", entries: "empty=x"},
		{domain: "shop", entries: "="},

		{domain: "shared", entries: "file=img/a", want: 1, key: "4:file5:img/*"},
		{domain: "shared", entries: "file=img/b", want: 1, key: "4:file5:img/*"},
		{domain: "shared", entries: "file=img/logo", want: 2},
		{domain: "shared", entries: "file=img/*", want: 1},
		{domain: "shared", entries: "dir=top/a, dir=sub/b", want: 3, key: "3:dir5:top/*3:dir5:sub/*"},
		{domain: "shared", entries: "user=u1, role=r1, verb=get", want: 4, key: "4:user2:u*4:role2:r14:verb3:get"},
		{domain: "shared", entries: "wider=x", want: 5, key: "5:wider5:wide*"},
		{domain: "shared", entries: "wide=x", want: 5, key: "4:wide5:wide*"},
	} {
		entries := entriesOf(row.entries)
		l, key := tree.Find(row.domain, entries, []byte("before "))
		got, wantKey := uint32(0), "before "
		if l != nil {
			got = l.RequestsPerUnit
		}
		if row.want > 0 {
			if row.key == "" {
				row.key = string(AppendKey(nil, entries))
			}
			wantKey += row.key
		}
		if got != row.want || string(key) != wantKey {
			t.Errorf("%s %s: %d and %q, want %d and %q", row.domain, row.entries, got, key, row.want, wantKey)
		}
	}
	if l, _ := tree.Find("shop", entriesOf("health=x"), nil); l == nil || !l.Unlimited || l.Index >= 0 {
		t.Errorf("an unlimited descriptor: %+v", l)
	}
}

// Lists of entries that look alike when they are joined have different keys.
func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, text := range []string{
		"a_b=c", "a=b_c", "a=b, c=d", "a=b_c=d", "a=b_c_d", "a=", "a=, b=", "=", "1:a=b", "a=1:b", "a=b1:c1:d", "ab=",
	} {
		key := string(AppendKey(nil, entriesOf(text)))
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the key %q", text, other, key)
		}
		seen[key] = text
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	tree := parse(t, shop, shared)
	key := make([]byte, 0, 256)
	requests := [][]Entry{
		entriesOf("tier=gold, user=ann"), entriesOf("path=/static/css"), entriesOf("path=/x"), entriesOf("none=x"), entriesOf("a=b"),
	}
	deep := entriesOf("user=u1, role=r1, verb=get")
	if n := testing.AllocsPerRun(100, func() {
		for _, entries := range requests {
			tree.Find("shop", entries, key[:0])
		}
		tree.Find("shared", deep, key[:0])
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	tree := parse(t, shared)
	got := tree.Trace("shared", entriesOf("user=u1, role=r1, verb=get"))
	want := []Step{
		{Entry{"user", "u1"}, ByWildcard, "user_u*", "u*", false},
		{Entry{"role", "r1"}, ByWildcard, "role_r*", "r1", false},
		{Entry{"verb", "get"}, ByKey, "verb", "get", true},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if steps := tree.Trace("shared", entriesOf("file=img/logo, more=x")); len(steps) != 1 || steps[0].Way != ByValue || steps[0].Key != "file_img/logo" {
		t.Errorf("a descriptor that is too deep: %+v", steps)
	}
	if steps := tree.Trace("none", entriesOf("a=b")); steps != nil {
		t.Errorf("an unknown domain: %+v", steps)
	}
}
