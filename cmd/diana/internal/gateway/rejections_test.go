// SPDX-License-Identifier: MIT

package gateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/diana-limiter/diana/internal/testproc"
)

// The log has a line a minute about the same mistake, and about ten mistakes. The metrics count all.
func TestRejectionsAreLoggedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log testproc.Buffer
		r := newRejections(slog.New(slog.NewTextHandler(&log, nil)))
		seen := 0
		want := func(n int, last string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines)-seen != n || !strings.Contains(lines[len(lines)-1], last) {
				t.Errorf("%d lines more, want %d, the last with %s:\n%s", len(lines)-seen, n, last, log.String())
			}
			seen = len(lines)
		}
		for range 3 {
			r.peer("192.0.2.7")
		}
		want(1, `reason=peer peer=192.0.2.7 count=1`)
		time.Sleep(time.Minute)
		r.peer("192.0.2.7")
		want(1, "count=3")
		for i := range 1000 {
			r.unknownDomain(fmt.Sprint("domain ", i), func() string { return "" })
		}
		want(9, `domain="domain 8" count=1`)
		time.Sleep(time.Minute)
		r.invalid(strings.Repeat("x", 1000))
		want(1, "error="+strings.Repeat("x", mostText)+" count=1")
		if n := testutil.ToFloat64(r.unknown); n != 1000 {
			t.Errorf("%v unknown domains, want 1000", n)
		}
		if n := testutil.ToFloat64(r.total.WithLabelValues(reasonPeer)); n != 4 {
			t.Errorf("%v peers, want 4", n)
		}
	})
}
