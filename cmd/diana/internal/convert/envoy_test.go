// SPDX-License-Identifier: MIT

package convert

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/rule"
)

var actors = map[string]string{"host": "host", "user": "header:X-User", "year": "ip"}

// treeOf reads a file of descriptors.
func treeOf(name, text string) (*descriptors.Tree, error) {
	files := []descriptors.File{{Name: name, Data: []byte(text)}}
	return descriptors.Parse(files, command.Vocabulary(), descriptors.Options{Scope: rule.Global})
}

func TestEnvoy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/envoy/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := treeOf("shop.yaml", string(text))
	if err != nil {
		t.Fatal(err)
	}
	result := Envoy("shop.yaml", tree, actors)
	checkResult(t, result)
	const golden = "testdata/envoy/rules.yaml"
	if *update {
		if err := os.WriteFile(golden, []byte(result.YAML), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != result.YAML {
		t.Errorf("%v, found\n%s", err, result.YAML)
	}
}

// The rule of remote_address and its exceptions allow as many requests as the descriptors, in the same windows. A
// window of a week or a month is one of days since 1970, and not of the calendar.
func TestEnvoyCounts(t *testing.T) {
	t.Parallel()
	for unit, window := range map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
		"week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour,
	} {
		tree, err := treeOf("x", `
domain: shop
descriptors:
- {key: remote_address, rate_limit: {unit: `+unit+`, requests_per_unit: 3}}
- {key: remote_address, value: 10.0.0.1, rate_limit: {unlimited: true}}
- {key: remote_address, value: 10.0.0.2, rate_limit: {unit: `+unit+`, requests_per_unit: 5}}
- {key: remote_address, value: 10.0.0.3, rate_limit: {unit: `+unit+`, requests_per_unit: 0}}
- {key: remote_address, value: 10.0.0.6}
`)
		if err != nil {
			t.Fatal(err)
		}
		result := Envoy("x", tree, nil)
		if len(result.Remarks) > 0 {
			t.Error(result.Remarks)
		}
		now := time.Unix(1_800_000_000, 0)
		l, err := diana.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)}.New(checkResult(t, result))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		type counter struct {
			window int64
			value  string
		}
		used := map[counter]int64{}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 3000 {
			now = now.Add(time.Duration(r.Int64N(int64(window / 8))))
			address := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}[r.IntN(6)]
			limit, _ := tree.Find("shop", []descriptors.Entry{{Key: "remote_address", Value: address}}, nil)
			c := counter{now.UnixNano() / int64(window), address}
			want := limit == nil || limit.Unlimited || used[c] < int64(limit.RequestsPerUnit)
			if want {
				used[c]++
			}
			d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/", Actors: map[string]string{"ip": address}})
			if err != nil || d.Allowed != want {
				t.Fatalf("%s, request %d of %s: %v %v, expected %v", unit, i, address, d.Allowed, err, want)
			}
			d.Done()
		}
	}
}

func FuzzEnvoy(f *testing.F) {
	text, err := os.ReadFile("testdata/envoy/shop.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		if tree, err := treeOf("a", text); err == nil {
			checkResult(t, Envoy("a", tree, actors))
		}
	})
}

// Each row is the list of descriptors, and a part of the rules or a remark.
func TestEnvoyRows(t *testing.T) {
	t.Parallel()
	const limit = "rate_limit: {unit: day, requests_per_unit: 5"
	for _, row := range []struct{ descriptors, want string }{
		{"{key: remote_address, " + limit + ", algo: SW, slices: 5}}", "unit: day, rpu: 5, algo: SW, slices: 5, scope: global}"},
		{"{key: remote_address, " + limit + ", algo: LB, queue: 0, scope: local}}", "rpu: 5, algo: LB, queue: 0}"},
		{"{key: remote_address, shadow_mode: true, " + limit + "}}", "scope: global, mode: shadow}"},
		{"{key: remote_address, " + limit + ", debit: true}}", "debit: a rule does not count what it refuses"},
		{"{key: remote_address, " + limit + ", replaces: [{name: x}]}}", "replaces: all rules of a request count, so mode: shadow"},
		{"{key: other, " + limit + "}}", `only the routes of Envoy say what the key "other" is; see --actor`},
		{"{key: host, value: 10.0.0.0/8, " + limit + "}}, {key: host, " + limit + "}}", `overrides: {"=10.0.0.0/8": {rpu: 5}}`},
		{"{key: host, value: a, " + limit + ", algo: TB}}, {key: host, " + limit + "}}", `so the rule exempts "a"`},
		{"{key: host, value: a, shadow_mode: true, " + limit + "}}, {key: host, " + limit + "}}", "except: [a]"},
		{"{key: host, value: 'yes', " + limit + "}}, {key: host, " + limit + "}}", `overrides: {"yes": {rpu: 5}}`},
		{"{key: host, value: a}, {key: host, rate_limit: {unlimited: true}}", "limits: []"},
		{"{key: host, descriptors: [{key: remote_address, descriptors: [{key: user, descriptors: [{key: cookie, " + limit + "}}]}]}]}", "an actor has at most 3 parts"},
		{"{key: host, descriptors: [{key: host, " + limit + "}}]}", "actor: host,"},
	} {
		tree, err := treeOf("a", "domain: d\ndescriptors: ["+row.descriptors+"]\n")
		if err != nil {
			t.Errorf("%s: %v", row.descriptors, err)
			continue
		}
		of := maps.Clone(actors)
		of["cookie"] = "cookie:c"
		result := Envoy("a", tree, of)
		checkResult(t, result)
		if !strings.Contains(result.YAML, row.want) {
			t.Errorf("%s: expected %s in\n%s", row.descriptors, row.want, result.YAML)
		}
	}
}
