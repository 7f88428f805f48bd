// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/rule"
)

// Diana and envoyproxy/ratelimit give the same answers to the same requests, except for the declared
// differences. Several clients ask, each in domains of its own, so each counter has one order of events.
func TestDifferential(t *testing.T) {
	if !*all {
		t.Skip("only with -all")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", *seed)
	p := buildPeer(t)
	folder := filepath.Join(t.TempDir(), "limits", "config")
	const clients = 8
	var askers []*asker
	for i := range clients {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		a := &asker{Rand: r, domains: peerDomains(t, p.source, fmt.Sprint(i))}
		for n := range len(a.domains) {
			a.domains = append(a.domains, generate(r, fmt.Sprintf("made%d-%d", n, i)))
		}
		for _, d := range a.domains {
			write(t, filepath.Join(folder, d.name+".yaml"), d.text)
		}
		askers = append(askers, a)
	}
	files, err := descriptors.Read([]string{folder})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := descriptors.Parse(files, config.DefaultVocabulary(), descriptors.Options{Scope: rule.Global})
	if err != nil {
		t.Fatal(err)
	}
	theirs := p.start(t, redistest.Start(t).Addr(), folder)
	ours := startDiana(t, fmt.Sprintf("url: %q, timeout: 10s", redistest.Start(t).URL()), folder, "--descriptors-charge", "all")

	total := &tally{}
	var asked atomic.Int64
	var wg sync.WaitGroup
	for _, a := range askers {
		c := &comparison{tree, map[string]*counter{}, total}
		wg.Go(func() {
			for asked.Add(1) <= int64(*calls) && !t.Failed() {
				q := &pair{request: a.request(), sent: time.Now()}
				q.theirs, q.theirErr = theirs.client.ShouldRateLimit(t.Context(), q.request)
				q.ours, q.err = ours.client.ShouldRateLimit(t.Context(), q.request)
				q.got = time.Now()
				c.compare(t, q)
			}
		})
	}
	wg.Wait()
	total.print(t, *calls)
}
