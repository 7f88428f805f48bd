// SPDX-License-Identifier: MIT

package ratelimit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/diana-limiter/diana/envoy"
)

// Names become the labels of the default mapper.
func TestLabels(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][3]string{
		"shop.user":                   {"shop", "user"},
		"shop.path_/cart.user_ann.x":  {"shop", "path_/cart", "user_ann"},
		"shop.ip_10.1.2.3.user":       {"shop", "ip_10_1_2_3", "user"},
		"shop.url_http://x|y":         {"shop", "url_http_//x_y"},
		"shop.a_\xff":                 {"shop", "a__"},
		"shop.remote_address_1.2.3.4": {"shop", "remote_address_1_2_3_4"},
	} {
		if got := labelsOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The metrics have a bound, because names can have values of requests.
func TestMostSeries(t *testing.T) {
	t.Parallel()
	s := readValid(t, "")
	m, _ := newMetrics(&s)
	for i := range mostSeries + 5 {
		m.counted(envoy.Counted{Name: func() string { return fmt.Sprintf("shop.user_%d", i) }, Limit: 1, Hits: 2, Over: true})
	}
	if n, other := len(m.named), testutil.ToFloat64(m.other.over); n != mostSeries || other != 10 {
		t.Errorf("%d names, and %v hits of others, want %d and 10", n, other, mostSeries)
	}
}

// Hits are within a limit, near it or over it as in envoyproxy/ratelimit: near begins above 0.8 of the limit.
func TestCountedHits(t *testing.T) {
	t.Parallel()
	s := readValid(t, "")
	m, collectors := newMetrics(&s)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	for _, c := range []envoy.Counted{
		{Limit: 10, Hits: 1, Remaining: 2},             // 8 of 10: within
		{Limit: 10, Hits: 1, Remaining: 1},             // 9: near
		{Limit: 10, Hits: 4, Remaining: 1},             // from 5 to 9: one of four is near
		{Limit: 10, Hits: 0, Remaining: 0},             // a look
		{Limit: 10, Hits: 3, Over: true},               // over
		{Limit: 10, Hits: 2, Over: true, Shadow: true}, // over, and allowed
		{Limit: 0, Hits: 1, Over: true},                // never
		{Limit: 10, Hits: 1, Remaining: 4294967295},    // nobody knows
	} {
		c.Name = func() string { return "shop.user" }
		m.counted(c)
	}
	var want strings.Builder
	for _, row := range []struct {
		name string
		n    int
	}{{"near_limit", 2}, {"over_limit", 6}, {"shadow_mode", 2}, {"total_hits", 13}, {"within_limit", 7}} {
		fmt.Fprintf(&want, "ratelimit_service_rate_limit_%s{domain=\"shop\",key1=\"user\",key2=\"\"} %d\n", row.name, row.n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "ratelimit_service_rate_limit_") {
			fmt.Fprintf(&got, "%s{domain=%q,key1=%q,key2=%q} %v\n", f.GetName(), f.GetMetric()[0].GetLabel()[0].GetValue(),
				f.GetMetric()[0].GetLabel()[1].GetValue(), f.GetMetric()[0].GetLabel()[2].GetValue(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	if got.String() != want.String() {
		t.Errorf("%s\nwant\n%s", got.String(), want.String())
	}
	m.load(nil)
	m.load(fmt.Errorf("mistake"))
	if a, b := testutil.ToFloat64(m.loaded), testutil.ToFloat64(m.unloaded); a != 1 || b != 1 {
		t.Errorf("%v loaded, %v not, want 1 each", a, b)
	}
}
