// SPDX-License-Identifier: MIT

package compat

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// caseFiles have the limits of the integration tests of envoyproxy/ratelimit. Their minutes are days here,
// and so on, so that no window ends during a test.
var caseFiles = map[string]string{
	"basic.yaml": `
domain: basic
descriptors:
- {key: key1, rate_limit: {unit: second, requests_per_unit: 50}}
`,
	"another.yaml": `
domain: another
descriptors:
- {key: key2, rate_limit: {unit: day, requests_per_unit: 20}}
- {key: key3, rate_limit: {unit: week, requests_per_unit: 10}}
- {key: key4, rate_limit: {unit: day, requests_per_unit: 20}}
`,
	"share_threshold.yaml": `
domain: share-threshold-test
descriptors:
- {key: files, value: files/*, share_threshold: true, rate_limit: {unit: week, requests_per_unit: 10}}
- {key: files_no_share, value: files_no_share/*, rate_limit: {unit: week, requests_per_unit: 10}}
`,
}

const reloadFile = `
domain: reload
descriptors:
- {key: key1, rate_limit: {unit: second, requests_per_unit: 50}}
- {key: block, rate_limit: {unit: second, requests_per_unit: 0}}
`

// aCase is a sequence of requests. In descriptors, "#" is the number of the request, from 0.
type aCase struct {
	name, domain string
	descriptors  []string
	requests     int
	want         func(i int) string
}

// cases are those of envoyproxy/ratelimit. charge is the value of --descriptors-charge. "all" is its default,
// and "none" is near to its STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.
func cases(charge string) []aCase {
	always := func(text string) func(int) string { return func(int) string { return text } }
	left := func(limit, used int, unit string) string {
		if used > limit {
			return fmt.Sprintf("over 0 of %d/%s", limit, unit)
		}
		return fmt.Sprintf("ok %d of %d/%s", limit-used, limit, unit)
	}
	overall := func(statuses ...string) string {
		text := strings.Join(statuses, " | ")
		if strings.Contains(text, "over") {
			return "over | " + text
		}
		return "ok | " + text
	}
	return []aCase{
		{"an unknown domain", "foo", []string{"hello=world"}, 1, always("ok | ok")},
		{"a second", "basic", []string{"key1=foo"}, 1, always("ok | ok 49 of 50/second")},
		{"over the limit", "another", []string{"key2=one"}, 25, func(i int) string { return overall(left(20, i+1, "day")) }},
		{"two descriptors", "another", []string{"key2=two", "key3=two"}, 15, func(i int) string {
			used := i + 1
			if charge == "none" {
				used = min(used, 10)
			}
			return overall(left(20, used, "day"), left(10, i+1, "week"))
		}},
		{"a shared threshold", "share-threshold-test", []string{"files=files/#.pdf"}, 11, func(i int) string { return overall(left(10, i+1, "week")) }},
		{"no shared threshold", "share-threshold-test", []string{"files_no_share=files_no_share/#"}, 10, always("ok | ok 9 of 10/week")},
	}
}

// The cases of the integration tests of envoyproxy/ratelimit pass, with each kind of Redis.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(t *testing.T) string{
		"single": func(t *testing.T) string { return fmt.Sprintf("url: %q", redistest.Start(t).URL()) },
		"Sentinel": func(t *testing.T) string {
			s := redistest.StartSentinel(t)
			return fmt.Sprintf("sentinel: {master: %s, addresses: %s}", s.MasterName, list(s.Addrs()))
		},
		"Cluster": func(t *testing.T) string { return "cluster: " + list(redistest.StartCluster(t, 3).Addrs()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way := way(t)
			for _, charge := range []string{"none", "all"} {
				t.Run("charge "+charge, func(t *testing.T) { testCases(t, way+", prefix: "+charge, charge) })
			}
		})
	}
}

func testCases(t *testing.T, way, charge string) {
	folder := t.TempDir()
	for name, text := range caseFiles {
		write(t, filepath.Join(folder, name), text)
	}
	s := startDiana(t, way+", timeout: 10s", folder, "--descriptors-charge", charge)
	for _, c := range cases(charge) {
		for i := range c.requests {
			got, want := s.ask(t, c.domain, i, c.descriptors...), c.want(i)
			if charge == "none" { // a refusal that Diana remembers: it has not asked Redis what remains
				got = strings.Replace(got, "ok 0 of 20/day without a time until reset", "ok 10 of 20/day", 1)
			}
			if got != want {
				t.Errorf("%s: request %d: %s, want %s", c.name, i, got, want)
			}
		}
	}

	reset := func() int64 {
		r, err := s.client.ShouldRateLimit(t.Context(), question("another", 0, "key4=duration"))
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatuses()[0].GetDurationUntilReset().GetSeconds()
	}
	first := reset()
	testproc.Eventually(t, func() bool { return reset() < first })

	const free, blocked = "ok | ok", "over | over 0 of 0/second"
	asked := func() string { return s.ask(t, "reload", 0, "block=foo") }
	if got := asked(); got != free {
		t.Errorf("before the file is there: %s", got)
	}
	file := write(t, filepath.Join(folder, "reload.yaml"), reloadFile)
	testproc.Eventually(t, func() bool { return asked() == blocked })
	if got, want := s.ask(t, "reload", 0, "key1=foo"), "ok | ok 49 of 50/second"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return asked() == free })
}

// question returns a request with descriptors such as "key=value,key=value". "#" is a number.
func question(domain string, number int, texts ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	for _, text := range texts {
		d := &common.RateLimitDescriptor{}
		for _, e := range entries(strings.ReplaceAll(text, "#", fmt.Sprint(number))) {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// ask returns the answer in one line: the overall code, and for each descriptor its code, what remains, and
// the limit.
func (s *server) ask(t testing.TB, domain string, number int, texts ...string) string {
	t.Helper()
	a, err := s.client.ShouldRateLimit(context.Background(), question(domain, number, texts...))
	if err != nil {
		return err.Error()
	}
	code := func(c rls.RateLimitResponse_Code) string {
		return map[rls.RateLimitResponse_Code]string{rls.RateLimitResponse_OK: "ok", rls.RateLimitResponse_OVER_LIMIT: "over"}[c]
	}
	parts := []string{code(a.GetOverallCode())}
	for _, status := range a.GetStatuses() {
		part := code(status.GetCode())
		if l := status.GetCurrentLimit(); l != nil {
			part += fmt.Sprintf(" %d of %d/%s", status.GetLimitRemaining(), l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
			if status.GetDurationUntilReset().GetSeconds() <= 0 {
				part += " without a time until reset"
			}
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " | ")
}
