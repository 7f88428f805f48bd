// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// Every spelling of a path has the bandwidths of its rules.
func TestBandwidths(t *testing.T) {
	t.Parallel()
	entry := func(url string, rate int64, actor ...rule.Actor) rule.Entry {
		return rule.Entry{URL: pattern(t, url), Bandwidth: &rule.Bandwidth{Rate: rate, Actor: actor}}
	}
	s, err := Compile([]rule.Entry{
		entry("/files", 5000),
		entry("/", 10_000, rule.Actor{Kind: "device"}),
		entry("POST /files", 2000, rule.All),
		{URL: pattern(t, "/none")},
	}, identity(t), rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path string
		want         []string
	}{
		{"GET", "/", []string{"10000 header:X-Device-Id=1:d;"}},
		{"GET", "/files/a", []string{"10000 header:X-Device-Id=1:d;", "5000 "}},
		{"GET", "/x/../files", []string{"10000 header:X-Device-Id=1:d;", "5000 "}},
		{"POST", "/files;a=b", []string{"10000 header:X-Device-Id=1:d;", "5000 ", "2000 "}},
	} {
		r := request("X-Device-Id", "d")
		r.Method, r.Path = tc.method, tc.path
		var got []string
		for _, e := range s.ExplainBandwidths(r) {
			got = append(got, fmt.Sprint(e.Bandwidth.Rate, " ", e.Key))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.path, got, tc.want)
		}
	}
	if b := s.Bandwidths; len(b) != 3 || b[0].Shared() || !b[1].Shared() || !b[2].Shared() || b[1].Counters == b[2].Counters {
		t.Errorf("%+v", b)
	}
	for _, rate := range []int64{0, bounds.MinBandwidth - 1, bounds.MaxBandwidth + 1} {
		if _, err := Compile([]rule.Entry{entry("/", rate)}, rule.Identity{}, rule.Paths{}, actors.Kinds()); err == nil || !strings.Contains(err.Error(), `bandwidth of "/" is`) {
			t.Errorf("a rate of %d: %v", rate, err)
		}
	}
	if _, err := Compile([]rule.Entry{entry("/", 1000, rule.Actor{Kind: "ghost"})}, rule.Identity{}, rule.Paths{}, actors.Kinds()); err == nil {
		t.Error("an unknown actor was accepted")
	}
}
