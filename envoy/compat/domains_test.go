// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/descriptors"
)

// domain is a file of limits, and descriptors that match in it or nearly so. In a descriptor such as
// "key=value,key=?" a question mark is any value.
type domain struct {
	name, text string
	near       []string
}

// peerFiles are the files of envoyproxy/ratelimit that it accepts and that have limits.
var peerFiles = []struct {
	file string // in its module
	near []string
}{
	{"test/config/basic_config.yaml", []string{
		"key1=value1,subkey1=?", "key1=value1,subkey1=subvalue1", "key1=value1", "key2=?", "key2=value2", "key2=value3", "key3=?", "key4=?",
		"key5=value5", "key5=value5,subkey5=subvalue5", "key6=?", "key7=?",
	}},
	{"test/config/shadowmode_config.yaml", []string{"key1=value1,subkey1=?", "key1=value1,subkey1=subvalue1", "key2=?", "key2=value2"}},
	{"test/config/wildcard.yaml", []string{
		"wild=foo?", "wild=foo", "wild=fo?", "noWild=foo", "noWild=foo?", "noVal=?", "noVal=", "midWild=bar?b", "midWild=bar*b", "nestedWild=val1,wild=goo?",
	}},
	{"test/config/share_threshold.yaml", []string{
		"files=files/?", "nested=parent,files=nested/?", "files=top/?,files=nested/?", "route=api/?,method=?", "service=svc/?,endpoint=?",
		"path=path/?,file=file/?,type=?", "user=user/?,resource=res/?,action=?", "file=test1", "file=test?",
	}},
	{"test/config/merge_domain_key1.yaml", []string{"key1=value1", "key1=?"}},
	{"test/integration/runtime/current/ratelimit/config/basic.yaml", []string{"key1=?", "key1=local", "key1_local=?", "one_per_minute=?"}},
	{"test/integration/runtime/current/ratelimit/config/another.yaml", []string{"key2=?", "key3=?", "key4=?", "key2_local=?", "key4_local=?"}},
	{"test/integration/runtime/current/ratelimit/config/share_threshold.yaml", []string{"files=files/?", "files_no_share=files_no_share/?"}},
	{"examples/ratelimit/config/example.yaml", []string{
		"category=account", "source_cluster=proxy,destination_cluster=bkthomps", "source_cluster=proxy,destination_cluster=mock",
		"source_cluster=proxy,destination_cluster=override", "source_cluster=proxy,destination_cluster=fake", "foo=?", "foo=?,bar=?",
		"foo=?,bar=bkthomps", "foo=?,bar=banned", "foo=?,baz=?", "foo=?,baz=not-so-shady", "foo=?,baz=shady", "foo=?,bay=?", "unspec=?", "qux=?",
	}},
}

var domainLine = regexp.MustCompile(`(?m)^domain: .*$`)

// peerDomains returns peerFiles, with the domain of each as its own name and a suffix.
func peerDomains(t testing.TB, source, suffix string) (list []*domain) {
	t.Helper()
	for i, f := range peerFiles {
		text, err := os.ReadFile(filepath.Join(source, f.file))
		if err != nil {
			t.Fatal(err)
		}
		d := &domain{name: fmt.Sprintf("peer%d-%s", i, suffix), near: f.near}
		d.text = domainLine.ReplaceAllLiteralString(string(text), "domain: "+d.name)
		list = append(list, d)
	}
	return list
}

// generate returns a domain with random descriptors.
func generate(r *rand.Rand, name string) *domain {
	d := &domain{name: name}
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n", name)
	d.level(r, &b, "", "", 3)
	d.text = b.String()
	return d
}

var (
	someKeys   = []string{"a", "b", "a_b", "a*", "_", "user", "path"}
	someValues = []string{"", "b", "b_c", "c", "*", "b*", "b_*", "bc", "*x", "/cart/*", "ünï"}
	someUnits  = []string{"second", "minute", "hour", "day", "week", "month", "year", "SECOND", "Minute"}
)

// level writes a list of descriptors. above is the descriptor of the levels above.
func (d *domain) level(r *rand.Rand, b *strings.Builder, indent, above string, depth int) {
	b.WriteString(indent + "descriptors:\n")
	taken := map[string]bool{}
	for range 2 + r.IntN(5) {
		key, value := one(r, someKeys), one(r, someValues)
		composite := key
		if value != "" {
			composite += "_" + value
		}
		if taken[composite] {
			continue
		}
		taken[composite] = true
		fmt.Fprintf(b, "%s- key: %q\n", indent, key)
		asked := "?"
		if value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, value)
			asked = strings.Replace(value, "*", "?", 1)
		}
		for _, flag := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"} {
			if r.IntN(6) == 0 {
				fmt.Fprintf(b, "%s  %s: true\n", indent, flag)
			}
		}
		if strings.HasSuffix(composite, "*") && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
		}
		if r.IntN(4) > 0 {
			fmt.Fprintf(b, "%s  rate_limit: %s\n", indent, randomLimit(r))
		}
		near := strings.TrimPrefix(above+","+strings.Replace(key, "*", "x", 1)+"="+asked, ",")
		d.near = append(d.near, near)
		if depth > 1 && r.IntN(2) == 0 {
			d.level(r, b, indent+"  ", near, depth-1)
		}
	}
}

// limitNames are the names of limits, for replaces.
var limitNames = []string{"one", "two", "three"}

func randomLimit(r *rand.Rand) string {
	var parts []string
	if r.IntN(12) == 0 {
		parts = append(parts, "unlimited: true")
	} else {
		n := r.IntN(12)
		if r.IntN(20) == 0 {
			n = 1<<32 - 1
		}
		parts = append(parts, fmt.Sprintf("requests_per_unit: %d", n), "unit: "+one(r, someUnits))
	}
	name := ""
	if r.IntN(3) == 0 {
		name = one(r, limitNames)
		parts = append(parts, "name: "+name)
	}
	if other := one(r, limitNames); other != name && r.IntN(5) == 0 {
		parts = append(parts, "replaces: [{name: "+other+"}]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func one[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// entries returns the entries of a descriptor such as "key=value,key=value".
func entries(text string) (list []descriptors.Entry) {
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		list = append(list, descriptors.Entry{Key: key, Value: value})
	}
	return list
}

// Both programs accept and reject the same files of envoyproxy/ratelimit.
func TestSameFiles(t *testing.T) {
	if !*all {
		t.Skip("only with -all")
	}
	p := buildPeer(t)
	files, err := filepath.Glob(filepath.Join(p.source, "test", "config", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var accepted []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, filepath.Base(file)), string(text))
		theirs, ours := accepts(t, p.check, "-config_dir", dir), accepts(t, *program, "check", "--descriptors", dir)
		if theirs != ours {
			t.Errorf("%s: envoyproxy/ratelimit accepts it: %v, Diana: %v", filepath.Base(file), theirs, ours)
		}
		if ours {
			accepted = append(accepted, filepath.Base(file))
		}
	}
	slices.Sort(accepted)
	t.Logf("%d files, of which both accept %v", len(files), accepted)
}
