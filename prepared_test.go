// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/rule"
)

// A Prepared decides, counts, calls hooks and notes refusals as Take does, before and after a change of the
// configuration.
func TestPrepared(t *testing.T) {
	t.Parallel()
	texts := []string{
		"{url: /a, rules: [{name: r, actor: account, rpu: 3}]}",
		"- {url: /, rules: [{name: all, rpu: 5, unit: day}]}\n- {url: GET /a, rules: [{name: r, actor: account, rpu: 1}]}\n- {url: /b, rules: [{rpu: 0}]}",
		"{url: /b, rules: [{name: r, rpu: 0}]}",
		"{url: '/a/{x}', rules: [{name: r, algo: C, rpu: 1}]}",
	}
	requests := []diana.Request{
		{Actors: map[string]string{"account": "ann"}}, {Actors: map[string]string{"account": "bob"}}, {}, {Path: "/b"}, {Method: "POST"},
		{HTTP: &http.Request{Header: http.Header{"X-Http-Method": {"GET"}}}}, {OtherPaths: []string{"/b"}}, {Path: "/a/..;/x"},
		{Charges: []rule.Charge{{Rule: "r", Key: "k", Cost: 1}}},
	}
	run := func(prepared bool) (log []string) {
		l := limiterOf(t, diana.Options{
			Now:        func() time.Time { return time.Unix(1_000_000, 0) },
			OnDecision: func(d *diana.Decision) { log = append(log, fmt.Sprint("hook ", d.Request().Path, d.Allowed)) },
		}, texts[0])
		p := l.Prepare("GET", "/a")
		for _, text := range append(texts, texts[0]) {
			update(t, l, text)
			for _, r := range append(requests, requests...) {
				if !prepared && r.Method == "" {
					r.Method = "GET"
				}
				if !prepared && r.Path == "" {
					r.Path = "/a"
				}
				take := l.Take
				if prepared {
					take = p.Take
				}
				d, err := take(context.Background(), r)
				log = append(log, fmt.Sprint(d.Allowed, d.RetryAfter, len(d.Verdicts), err))
				d.Done()
			}
			for _, r := range l.Status().Rules {
				log = append(log, fmt.Sprint(r.Name, countsOf(r), len(r.TopRefused) > 0))
			}
			log = append(log, fmt.Sprint(l.Rejected()))
		}
		return log
	}
	got, want := run(true), run(false)
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("%d lines, want %d; line %d is %v, want %v", len(got), len(want), i, got[min(i, len(got)-1)], want[i])
		}
	}
}

// A path that no honest client sends stays an error, each time.
func TestPreparedStrangePath(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 1}]}")
	p := l.Prepare("GET", "/\x00")
	for range 3 {
		if _, err := p.Take(context.Background(), diana.Request{}); !errors.As(err, new(*rule.PathError)) {
			t.Fatalf("error %v, want a rule.PathError", err)
		}
	}
	if n := l.Rejected()["path"]; n != 3 {
		t.Errorf("%d requests were rejected, want 3", n)
	}
}

// One Prepared serves many goroutines while the configuration changes, and counts exactly.
func TestPreparedWhileConfigurationsChange(t *testing.T) {
	t.Parallel()
	text := "- {url: /jobs, rules: [{name: r, unit: day, rpu: 1000}]}\n- {url: /%s, rules: [{rpu: 1}]}"
	l := limiter(t, fmt.Sprintf(text, "x"))
	p := l.Prepare("", "/jobs")
	var allowed [4]int
	var wg sync.WaitGroup
	for i := range allowed {
		wg.Go(func() {
			for range 500 {
				d, err := p.Take(context.Background(), diana.Request{})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed[i]++
				}
				d.Done()
			}
		})
	}
	for i := range 20 {
		update(t, l, fmt.Sprintf(text, fmt.Sprint("x", i)))
	}
	wg.Wait()
	if n := allowed[0] + allowed[1] + allowed[2] + allowed[3]; n != 1000 {
		t.Errorf("%d of 2000 requests were allowed, want 1000", n)
	}
}

// A prepared request does not allocate under local rules.
func TestPreparedDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := limiter(t, "{url: '/a/{x}', rules: [{actor: account, rpu: 1000000}]}")
	p, r := l.Prepare("GET", "/a/b"), diana.Request{Actors: map[string]string{"account": "ann"}}
	if n := testing.AllocsPerRun(100, func() {
		d, _ := p.Take(context.Background(), r)
		d.Done()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// BenchmarkPrepared is a decision by one actor among the rules of a thousand URLs, prepared and not.
func BenchmarkPrepared(b *testing.B) {
	yaml := ""
	for i := range 1000 {
		yaml += fmt.Sprintf("- {url: /v%d/users/orders, rules: [{actor: account, rpu: 1000000000}]}\n", i)
	}
	l := limiter(b, yaml)
	r := diana.Request{Method: "POST", Path: "/v500/users/orders", Actors: map[string]string{"account": "ann"}}
	for name, take := range map[string]func(context.Context, diana.Request) (diana.Decision, error){
		"found": l.Take, "prepared": l.Prepare(r.Method, r.Path).Take,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := take(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				d.Done()
			}
		})
	}
}
