// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The limits of the integration tests of envoyproxy/ratelimit. Their units are shorter, so a test would fail whose requests
// are in two windows.
const integration = `basic.yaml
domain: basic
descriptors:
- {key: key1, rate_limit: {unit: year, requests_per_unit: 50}}
- {key: key5, rate_limit: {unit: second, requests_per_unit: 0}}
- {key: one_per_minute, rate_limit: {unit: year, requests_per_unit: 1}}
---another
domain: another
descriptors:
- {key: key2, rate_limit: {unit: year, requests_per_unit: 20}}
- {key: key3, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: key4, rate_limit: {unit: year, requests_per_unit: 20}}
---share.txt
domain: share-threshold-test
descriptors:
- {key: files, value: files/*, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: files_no_share, value: files_no_share/*, rate_limit: {unit: year, requests_per_unit: 10}}
`

// integrationRows are the requests of those tests, in their order. of is how often each is sent; the answers to those from
// the second on follow. left is what remains by the number of the request, from 0, of each descriptor; below 0: it is over.
var integrationRows = []struct {
	domain      string
	descriptors []string
	of          int
	left        func(i int, all bool) []int
}{
	{"foo", []string{"hello=world"}, 1, nil},
	{"basic", []string{"key1=foo"}, 1, func(int, bool) []int { return []int{49} }},
	{"another", []string{"key2=first"}, 25, func(i int, _ bool) []int { return []int{19 - i} }},
	{"another", []string{"key2=second", "key3=second"}, 15, func(i int, all bool) []int {
		switch {
		case i > 10 && !all:
			return []int{unasked, -1} // Diana remembers the refusal
		case i == 10 && !all:
			return []int{10, -1} // a refused request is not counted
		}
		return []int{19 - i, 9 - i}
	}},
	{"share-threshold-test", []string{"files=files/a.pdf"}, 10, func(i int, _ bool) []int { return []int{9 - i} }},
	{"share-threshold-test", []string{"files=files/b.csv"}, 1, func(int, bool) []int { return []int{-1} }},
	{"share-threshold-test", []string{"files_no_share=files_no_share/a"}, 1, func(int, bool) []int { return []int{9} }},
	{"share-threshold-test", []string{"files_no_share=files_no_share/b"}, 1, func(int, bool) []int { return []int{9} }},
	{"basic", []string{"key5=x"}, 2, func(int, bool) []int { return []int{-1} }},
	{"basic", []string{"one_per_minute=x"}, 2, func(i int, _ bool) []int { return []int{-i} }},
}

// unasked means that Diana did not ask what remains, so it is 0, without a time until reset. In envoyproxy/ratelimit it is
// 10 in these tests.
const unasked = 1000

// The requests of the integration tests of envoyproxy/ratelimit get the answers that these want, in both modes of
// charging. With -all so they do from envoyproxy/ratelimit itself.
func TestIntegration(t *testing.T) {
	folder := integrationFolder(t)
	programs := map[string][]string{"diana": {*program, "ratelimit"}}
	if *all {
		programs["envoyproxy"] = []string{buildPeer(t).service}
	}
	for name, program := range programs {
		for _, mode := range []struct{ charge, perSecond bool }{{true, false}, {false, false}, {true, true}} {
			charge := mode.charge
			t.Run(fmt.Sprintf("%s/all=%t/second=%t", name, charge, mode.perSecond), func(t *testing.T) {
				variables := []string{fmt.Sprintf("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=%t", !charge)}
				if mode.perSecond {
					variables = append(variables, "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+redistest.Start(t).Addr())
				}
				s := startByEnvironment(t, redistest.Start(t).Addr(), folder, variables, program...)
				askIntegration(t, s, charge, name == "diana")
				if s.healthcheck(t) != "200 OK OK" {
					t.Errorf("/healthcheck: %s", s.healthcheck(t))
				}
				if !charge {
					return
				}
				for metric, want := range map[string]string{
					`ratelimit_service_rate_limit_total_hits{domain="another",key1="key2"`:                       "40",
					`ratelimit_service_rate_limit_over_limit{domain="another",key1="key2"`:                       "5",
					`ratelimit_service_rate_limit_within_limit{domain="another",key1="key2"`:                     "35",
					`ratelimit_service_rate_limit_near_limit{domain="another",key1="key2"`:                       "4",
					`ratelimit_service_rate_limit_over_limit{domain="another",key1="key3"`:                       "5",
					`ratelimit_service_rate_limit_total_hits{domain="share-threshold-test",key1="files_files/*"`: "11",
					`ratelimit_service_config_load_success`:                                                      "1",
				} {
					testproc.Eventually(t, func() bool { return s.sample(t, metric) == want })
				}
			})
		}
	}
}

// integrationFolder writes the limits to files in a folder that is called config.
func integrationFolder(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "limits", "config")
	for text := range strings.SplitSeq(integration, "---") {
		name, text, _ := strings.Cut(text, "\n")
		write(t, filepath.Join(folder, name), text)
	}
	return folder
}

func askIntegration(t *testing.T, s *server, all, diana bool) {
	t.Helper()
	for _, row := range integrationRows {
		q := question(row.domain, 0, row.descriptors...)
		for i := range row.of {
			r, err := s.client.ShouldRateLimit(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, want := r.GetOverallCode().String(), "OK"
			var left []int
			if row.left != nil {
				left = row.left(i, all)
			}
			for n, st := range r.GetStatuses() {
				got += fmt.Sprintf(" %v %d", st.GetCode(), st.GetLimitRemaining())
				timed := left != nil
				switch {
				case left == nil, left[n] == unasked && diana:
					want += " OK 0"
					timed = false
				case left[n] == unasked:
					want += " OK 10"
				case left[n] < 0:
					want = "OVER_LIMIT" + strings.TrimPrefix(want, "OK") + " OVER_LIMIT 0"
				default:
					want += fmt.Sprintf(" OK %d", left[n])
				}
				if (st.GetDurationUntilReset().GetSeconds() > 0) != timed {
					t.Errorf("%s: %v until reset", row.domain, st.GetDurationUntilReset())
				}
			}
			if got != want {
				t.Errorf("%s %v, request %d: %s, want %s", row.domain, row.descriptors, i, got, want)
			}
		}
	}
}

// healthcheck returns what a probe gets.
func (s *server) healthcheck(t *testing.T) string {
	t.Helper()
	r, err := http.Get("http://" + s.json + "/healthcheck")
	if err != nil {
		t.Fatal(err)
	}
	return r.Status + " " + body(t, r)
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sample returns the value of the first metric whose line begins with a text.
func (s *server) sample(t *testing.T, begin string) string {
	t.Helper()
	r, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(body(t, r)) {
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}

// A program with the name ratelimit needs no arguments, as in the image that Envoy Gateway starts.
func TestRatelimitByName(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(*program, link); err != nil {
		t.Fatal(err)
	}
	s := startByEnvironment(t, redistest.Start(t).Addr(), integrationFolder(t), nil, link)
	if got := s.healthcheck(t); got != "200 OK OK" {
		t.Errorf("/healthcheck: %s", got)
	}
	text, err := exec.Command("env", "BACKEND_TYPE=memcache", link).CombinedOutput()
	if want := "diana ratelimit: BACKEND_TYPE: memcache is not supported, expected redis\n"; err == nil || string(text) != want {
		t.Errorf("memcache: %v, %s, want %s", err, text, want)
	}
}
