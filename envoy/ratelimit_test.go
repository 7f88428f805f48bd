// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
)

const limits = `
domain: shop
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: path
  value: /free
  rate_limit: {unlimited: true}
- key: path
  value: /cart
  rate_limit: {unit: year, requests_per_unit: 2, name: cart}
- key: path
  value: /try
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 1}
- key: plan
  value: gold
  rate_limit: {unit: year, requests_per_unit: 100, replaces: [{name: cart}]}
- key: stream
  rate_limit: {unit: year, requests_per_unit: 10, debit: true}
- key: quota
  quota_mode: true
  rate_limit: {unit: year, requests_per_unit: 1}
- key: a
  descriptors:
  - key: b
    rate_limit: {unit: year, requests_per_unit: 1}
`

// open opens a RateLimit with the text of one file.
func open(t testing.TB, text string, change ...func(*RateLimitOptions)) *RateLimit {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, file, text)
	settings, err := config.Parse("test.yaml", []byte("limits: []"))
	if err != nil {
		t.Fatal(err)
	}
	o := RateLimitOptions{Paths: []string{file}, Settings: func() *config.Config { return settings }, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	s, err := OpenRateLimit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// descriptor returns a descriptor with the entries of a text such as "user=ann,path=/cart".
func descriptor(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// request returns a request of the domain shop.
func request(texts ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "shop"}
	for _, text := range texts {
		r.Descriptors = append(r.Descriptors, descriptor(text))
	}
	return r
}

// ask returns the answer to a request in one line: the overall code, and of each descriptor the code,
// what remains and the limit.
func ask(t *testing.T, s *RateLimit, r *rls.RateLimitRequest) string {
	t.Helper()
	a, err := s.ShouldRateLimit(context.Background(), r)
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	short := map[rls.RateLimitResponse_Code]string{rls.RateLimitResponse_OK: "ok", rls.RateLimitResponse_OVER_LIMIT: "over"}
	text := short[a.GetOverallCode()]
	for _, st := range a.GetStatuses() {
		text += " | " + short[st.GetCode()]
		switch l := st.GetCurrentLimit(); {
		case st.GetLimitRemaining() == math.MaxUint32:
			text += " unlimited"
		case l != nil:
			text += fmt.Sprintf(" %d of %d/%s", st.GetLimitRemaining(), l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
			if seconds := st.GetDurationUntilReset().GetSeconds(); st.GetDurationUntilReset() != nil && st.GetLimitRemaining() < l.GetRequestsPerUnit() && (seconds <= 0 || seconds > 365*86400) {
				text += fmt.Sprintf(", reset in %d s", seconds)
			}
		}
	}
	return text
}

// onBothStores calls a test with the limits of a text that are counted in this process, and in Redis.
func onBothStores(t *testing.T, text string, f func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit)) {
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		f(t, func(change ...func(*RateLimitOptions)) *RateLimit { return open(t, text, change...) })
	})
	t.Run("global", func(t *testing.T) {
		t.Parallel()
		settings, err := config.Parse("test.yaml", fmt.Appendf(nil, "redis: {url: %q, timeout: 10s}\nlimits: []", redistest.Start(t).URL()))
		if err != nil {
			t.Fatal(err)
		}
		f(t, func(change ...func(*RateLimitOptions)) *RateLimit {
			return open(t, text, append(change, func(o *RateLimitOptions) { o.Settings = func() *config.Config { return settings } })...)
		})
	})
}

// Each kind of limit answers as Envoy expects.
func TestAnswers(t *testing.T) {
	t.Parallel()
	onBothStores(t, limits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		hits := func(r *rls.RateLimitRequest, n uint32) *rls.RateLimitRequest { r.HitsAddend = n; return r }
		own := func(r *rls.RateLimitRequest, i int, n uint64, negative bool) *rls.RateLimitRequest {
			r.Descriptors[i].HitsAddend, r.Descriptors[i].IsNegativeHits = wrapperspb.UInt64(n), negative
			return r
		}
		for i, row := range []struct {
			request *rls.RateLimitRequest
			want    string
		}{
			{request("user=ann"), "ok | ok 4 of 5/year"},
			{request("user=ann", "path=/cart"), "ok | ok 3 of 5/year | ok 1 of 2/year"},
			{request("user=joe"), "ok | ok 4 of 5/year"},
			{request("path=/free", "none=x", "user"), "ok | ok unlimited | ok | ok 4 of 5/year"},
			{hits(request("user=ann"), 3), "ok | ok 0 of 5/year"},
			{request("user=ann", "path=/cart"), "over | over 0 of 5/year | ok 1 of 2/year"}, // charges none
			{request("path=/cart"), "ok | ok 0 of 2/year"},
			{request("path=/cart"), "over | over 0 of 2/year"},
			{request("path=/cart", "plan=gold"), "ok | ok | ok 99 of 100/year"}, // gold replaces cart
			{own(request("user=ann"), 0, 0, false), "ok | ok 0 of 5/year"},
			{own(request("user=ann"), 0, 2, true), "ok | ok 0 of 5/year"},
			{own(request("user=ann"), 0, 0, false), "ok | ok 2 of 5/year"},
			{own(hits(request("user=ann", "user=sue"), 2), 0, 1, false), "ok | ok 1 of 5/year | ok 3 of 5/year"},
			{request("path=/try"), "ok | ok 0 of 1/year"},
			{request("path=/try"), "ok | ok 0 of 1/year"},
			{request("quota=1"), "ok | ok 0 of 1/year"},
			{request("quota=1"), "ok | ok 0 of 1/year"},
			{request("user=two", "user=two"), "ok | ok 3 of 5/year | ok 3 of 5/year"}, // counted twice
			{hits(request("stream=1"), 25), "over | over 0 of 10/year"},
			{own(request("stream=1"), 0, 16, true), "ok | ok 0 of 10/year"},
			{own(request("stream=1"), 0, 0, false), "ok | ok 1 of 10/year"},
			{request("a=1,b=2"), "ok | ok 0 of 1/year"},
			{request("a=1,b=2"), "over | over 0 of 1/year"},
			{request("a=1,b=3"), "ok | ok 0 of 1/year"},
			{request("a=1"), "ok | ok"},
			{request("a=1,b=2,c=3"), "ok | ok"},
			{hits(request("user=big"), math.MaxUint32), "over | over 0 of 5/year"},
			{request("user=big"), "ok | ok 4 of 5/year"},
			{&rls.RateLimitRequest{Domain: "other", Descriptors: request("user=ann").Descriptors}, "ok | ok"},
		} {
			if got := ask(t, s, row.request); got != row.want {
				t.Errorf("%d: %v\n got %s\nwant %s", i, row.request, got, row.want)
			}
		}
	})
}

// With ChargeAll each descriptor counts, also beyond its limit.
func TestChargeAll(t *testing.T) {
	t.Parallel()
	onBothStores(t, limits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open(func(o *RateLimitOptions) { o.ChargeAll = true })
		for i, want := range []string{
			"ok | ok 4 of 5/year | ok 1 of 2/year", "ok | ok 3 of 5/year | ok 0 of 2/year",
			"over | ok 2 of 5/year | over 0 of 2/year", "over | ok 1 of 5/year | over 0 of 2/year",
			"over | ok 0 of 5/year | over 0 of 2/year", "over | over 0 of 5/year | over 0 of 2/year",
		} {
			if got := ask(t, s, request("user=ann", "path=/cart")); got != want {
				t.Errorf("%d: %s, want %s", i, got, want)
			}
		}
	})
}

// A limit that a request brings holds in place of that of the file, in a domain that exists.
func TestOverrides(t *testing.T) {
	t.Parallel()
	onBothStores(t, limits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		with := func(n uint32, unit typev3.RateLimitUnit) *rls.RateLimitRequest {
			r := request("user=ann")
			r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
			return r
		}
		for i, row := range []struct {
			request *rls.RateLimitRequest
			want    string
		}{
			{with(2, typev3.RateLimitUnit_YEAR), "ok | ok 1 of 2/year"},
			{with(2, typev3.RateLimitUnit_YEAR), "ok | ok 0 of 2/year"},
			{with(2, typev3.RateLimitUnit_YEAR), "over | over 0 of 2/year"},
			{with(math.MaxUint32, typev3.RateLimitUnit_MONTH), "ok | ok 4294967294 of 4294967295/month"},
			{with(0, typev3.RateLimitUnit_DAY), "over | over 0 of 0/day"},
			{request("user=ann"), "ok | ok 4 of 5/year"},
			{with(2, typev3.RateLimitUnit_UNKNOWN), "InvalidArgument: descriptors[0].limit.unit: expected one of SECOND to YEAR, found UNKNOWN"},
		} {
			if got := ask(t, s, row.request); got != row.want {
				t.Errorf("%d: %s, want %s", i, got, row.want)
			}
		}
		for n := range uint32(mostOverrides + 50) { // the oldest ones go, and come back
			if got, want := ask(t, s, with(n+3, typev3.RateLimitUnit_YEAR)), fmt.Sprintf("ok | ok %d of %d/year", n+2, n+3); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
		if got := ask(t, s, with(2, typev3.RateLimitUnit_YEAR)); got != "over | over 0 of 2/year" {
			t.Errorf("a limit that came back: %s", got)
		}
	})
}

// A request that cannot be decided gets a clear error.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := open(t, limits)
	many := request()
	for range mostDescriptors + 1 {
		many.Descriptors = append(many.Descriptors, descriptor("user=ann"))
	}
	deep := request(strings.Repeat("a=1,", mostEntries) + "a=1")
	huge := request("user=ann")
	huge.Descriptors[0].HitsAddend = wrapperspb.UInt64(math.MaxUint64)
	for want, r := range map[string]*rls.RateLimitRequest{
		"InvalidArgument: rate limit domain must not be empty":                                                 {Descriptors: request("user=ann").Descriptors},
		"InvalidArgument: rate limit descriptor list must not be empty":                                        {Domain: "shop"},
		"InvalidArgument: descriptors: expected at most 1024, found 1025":                                      many,
		"InvalidArgument: descriptors[0].entries: expected at most 64, found 65":                               deep,
		"InvalidArgument: descriptors[0].hits_addend: expected at most 4294967295, found 18446744073709551615": huge,
	} {
		if got := ask(t, s, r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := ask(t, s, &rls.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{nil, {}}}); got != "ok | ok | ok" {
		t.Errorf("empty descriptors: %s", got)
	}
}

// A changed file is in force soon, keeps the counters, and a mistake in it changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	s := open(t, limits)
	file := s.options.Paths[0]
	if got := ask(t, s, request("user=ann")); got != "ok | ok 4 of 5/year" {
		t.Fatal(got)
	}
	write(t, file, strings.Replace(limits, "requests_per_unit: 5", "requests_per_unit: 50", 1))
	s.Reload()
	if got := ask(t, s, request("user=ann")); got != "ok | ok 48 of 50/year" {
		t.Error(got)
	}
	write(t, file, "domain: [")
	s.Reload()
	if got := ask(t, s, request("user=ann")); got != "ok | ok 47 of 50/year" {
		t.Error(got)
	}
	write(t, file, "domain: shop\ndescriptors: []")
	s.Reload()
	if got := ask(t, s, request("user=ann")); got != "ok | ok" {
		t.Error(got)
	}
}

// Reloads and new limits beside many requests lose no request, and count exactly.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	onBothStores(t, limits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		var allowed atomic.Int64
		var asking, changing sync.WaitGroup
		stop := make(chan struct{})
		changing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				write(t, s.options.Paths[0], limits+fmt.Sprintf("- key: extra%d\n  rate_limit: {unit: day, requests_per_unit: 1}\n", i%3))
				s.Reload()
				r := request("user=other")
				r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(i), Unit: typev3.RateLimitUnit_DAY}
				ask(t, s, r)
			}
		})
		for range 32 {
			asking.Go(func() {
				for range 20 {
					switch got := ask(t, s, request("plan=gold", "user=nobody else")); {
					case strings.HasPrefix(got, "ok | ok"):
						allowed.Add(1)
					case !strings.HasPrefix(got, "over | "):
						t.Error(got)
					}
				}
			})
		}
		asking.Wait()
		close(stop)
		changing.Wait()
		if n := allowed.Load(); n != 5 {
			t.Errorf("%d requests are allowed, want 5", n)
		}
	})
}

// Opening lists the mistakes of the files.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, file, "domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: fortnight, requests_per_unit: 5}\n")
	_, err := OpenRateLimit(t.Context(), RateLimitOptions{Paths: []string{file}, Settings: func() *config.Config { return &config.Config{} }})
	if err == nil || !strings.Contains(err.Error(), "limits.yaml:4:") || !strings.Contains(err.Error(), "fortnight") || status.Code(err) == codes.OK {
		t.Error(err)
	}
}
