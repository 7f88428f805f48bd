// SPDX-License-Identifier: MIT

package simulate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// queueLog writes the log of an upstream of some servers that gets, by turns, half and 1.4 times as much as it can answer.
// Each answer takes 20 ms on average. It returns the path of the log.
func queueLog(t *testing.T, servers int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	free := make(idle, servers)
	var b strings.Builder
	at := int64(1_700_000_000_000_000)
	for i := range 40_000 {
		load := []float64{0.5, 1.4}[i/5000%2]
		at += int64(r.ExpFloat64()*20_000/load) / int64(servers)
		answered := max(at, free[0]) + int64(r.ExpFloat64()*20_000)
		free.take(answered)
		fmt.Fprintf(&b, `{"start_time":"%d.%06d","request":"GET / HTTP/1.1","remote_addr":"192.0.2.1","status":200,"request_time":%.3f,"upstream_header_time":"0.001, %.6f"}`+"\n",
			at/micros, at%micros, float64(answered-at)/1e6+0.001, float64(answered-at)/1e6)
	}
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// played returns the result of a log under a rule of adaptive concurrency, with a model of so many servers.
func played(t *testing.T, file string, servers int) *Result {
	t.Helper()
	count := newCount(t, "limits: [{url: /, rules: [{name: upstream, algo: AC, rpu: 1000}]}]")
	if servers > 0 {
		count.Model(servers)
	}
	names := weblog.NewNames(nil)
	log, err := weblog.Open([]string{file}, nil, names, func(b weblog.Broken) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	comparison := NewComparison(names, count)
	for e := log.Next(); e != nil; e = log.Next() {
		if _, err := comparison.Play(e); err != nil {
			t.Fatal(err)
		}
	}
	if why := comparison.Unmeasured(); why != "" {
		t.Fatal(why)
	}
	return comparison.Report(log.Files).Config
}

// The model of the right number of servers fits, and the limit finds them. Its refusals are those that the upstream could
// not have answered. Other numbers do not fit.
func TestServers(t *testing.T) {
	t.Parallel()
	file := queueLog(t, 8)
	for servers, fits := range map[int]bool{4: false, 8: true, 16: false} {
		m := played(t, file, servers).Model
		if got := m.Early < 0.01 && m.Busy > 0.9 && m.Busy < 1.1; got != fits {
			t.Errorf("%d servers: %+v", servers, m)
		}
	}
	r := played(t, file, 8)
	if l := r.Rules[0]; l.Limit < 7 || l.Limit > 16 || l.Baseline < 0.010 || l.Baseline > 0.025 {
		t.Errorf("a limit of %d and a baseline of %v s, expected about 10 and 15 ms", l.Limit, l.Baseline)
	}
	if part := float64(r.Refused) / 40_000; part < 0.12 || part > 0.25 { // 0.4 of 1.4, in half of the requests
		t.Errorf("%.2f are refused, expected a seventh", part)
	}
	if without := played(t, file, 0); without.Model != nil || without.Refused <= r.Refused {
		t.Errorf("without a model %d are refused, expected more than %d: the queue of the log stays", without.Refused, r.Refused)
	}
}
