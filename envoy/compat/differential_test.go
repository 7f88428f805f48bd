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
	t.Run("serve", func(t *testing.T) {
		differ(t, p, false, func(folder string) *server {
			return startDiana(t, fmt.Sprintf("url: %q, timeout: 10s", redistest.Start(t).URL()), folder, "--descriptors-charge", "all")
		})
	})
	t.Run("ratelimit", func(t *testing.T) {
		differ(t, p, true, func(folder string) *server {
			// Two Redis servers, because serve has one.
			apart := []string{"REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL=" + redistest.Start(t).Addr()}
			return startByEnvironment(t, redistest.Start(t).Addr(), folder, apart, *program, "ratelimit")
		})
	})
}

// differ compares half of all calls. start starts Diana with the files of a folder; original means that its answers tell
// what those of envoyproxy/ratelimit tell.
func differ(t *testing.T, p *peer, original bool, start func(folder string) *server) {
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
	files, err := descriptors.Read([]string{folder}, descriptors.Names{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := descriptors.Parse(files, config.DefaultVocabulary(), descriptors.Options{Scope: rule.Global})
	if err != nil {
		t.Fatal(err)
	}
	theirs := startByEnvironment(t, redistest.Start(t).Addr(), folder, nil, p.service)
	ours := start(folder)

	total := &tally{}
	var asked atomic.Int64
	var wg sync.WaitGroup
	for _, a := range askers {
		c := &comparison{tree, original, map[string]*counter{}, total}
		wg.Go(func() {
			for asked.Add(1) <= int64(*calls/2) && !t.Failed() {
				q := &pair{request: a.request(), sent: time.Now()}
				q.theirs, q.theirErr = theirs.client.ShouldRateLimit(t.Context(), q.request)
				q.ours, q.err = ours.client.ShouldRateLimit(t.Context(), q.request)
				q.got = time.Now()
				c.compare(t, q)
			}
		})
	}
	wg.Wait()
	total.print(t, *calls/2)
}
