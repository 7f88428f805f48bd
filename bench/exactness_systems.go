// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/testproc"
)

const (
	dianaGlobalTB = "Diana, global TB"
	dianaGlobalSL = "Diana, global SL"
	dianaPatient  = "Diana, patient" // waits for a busy Redis, like the rivals in the group global
)

// exactSystem is a system and what it promises. A library is limited by a server of this program, so that the clients see
// it from outside, like a gateway.
type exactSystem struct {
	name    string
	kind    measure.Kind
	promise string
	bucket  bool          // it gets more evenly, and does not wait for a new window
	path    string        // of requests, before the key
	waits   time.Duration // for an answer; 0: answerPatience

	processes []*measure.Server
}

// exactSystems lists the systems in the order of the page, with the place where each makes its promise.
func exactSystems() []*exactSystem {
	const bucket = "n at once, and n more evenly in each unit"
	return []*exactSystem{
		{name: dianaGlobalTB, kind: measure.Diana, promise: bucket, bucket: true, path: "/minute/TB"}, // docs/algorithms.md
		{name: dianaGlobalSL, kind: measure.Diana, promise: "n in any interval of a unit", path: "/minute/SL"},
		{name: rivals.RedisRate, kind: measure.Rival, promise: bucket, bucket: true},                   // README and lua.go: GCRA
		{name: rivals.Ulule, kind: measure.Rival, promise: "n in each window, which a request begins"}, // drivers/store/redis: INCRBY, and PEXPIRE by the first
		{name: rivals.Envoy, kind: measure.Rival, promise: "n in each window of the clock"},            // README: requests_per_unit; src/limiter/cache_key.go
	}
}

// start starts the servers of a system.
func (x *exactYard) start(ctx context.Context, s *exactSystem) error {
	for range exactServers {
		command := x.Own(s.name, x.redis.URL())
		if s.name == rivals.Envoy {
			if err := x.envoy.Limit(fmt.Sprintf("{key: account, rate_limit: {unit: minute, requests_per_unit: %d}}", exactMinute.N)); err != nil {
				return err
			}
			command = x.envoy.Command(x.redis, x.FreeAddress())
		}
		p, err := x.Start(command)
		if err != nil {
			return err
		}
		s.processes = append(s.processes, p)
	}
	return ctx.Err()
}

// stop ends the servers of a system.
func (s *exactSystem) stop() {
	for _, p := range s.processes {
		_ = p.Kill() // nothing is lost
	}
	s.processes = nil
}

// exactHandler answers 200 for a request that a library allows, 202 if Diana allows it without Redis, 429 for a refusal,
// and 500 for an error. A rival's client of Redis has the settings that it has without options, because these are what
// most users have.
func exactHandler(ctx context.Context, name, url string) (http.Handler, error) {
	if strings.HasPrefix(name, "Diana") {
		options := map[string]string{dianaPatient: fmt.Sprintf(", timeout: %v", rivals.Patience)}[name]
		return exactDiana(ctx, fmt.Sprintf("{url: %q%s}", url, options))
	}
	open, ok := rivals.Libraries[name]
	if !ok {
		return nil, fmt.Errorf("%s: unknown %q", measure.ServeCommand, name)
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	decide, err := open(redis.NewClient(o))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed, err := decide(r.Context(), exactMinute, r.URL.Path)
		answerExact(w, allowed, false, err)
	}), err
}

func answerExact(w http.ResponseWriter, allowed, alone bool, err error) {
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !allowed:
		w.WriteHeader(http.StatusTooManyRequests)
	case alone:
		w.WriteHeader(http.StatusAccepted)
	}
}

// exactAlgorithms are those that promise an exact number.
var exactAlgorithms = []string{"W", "TB", "SW", "SL"}

// exactDiana counts the last part of a path by the limit of the rest.
func exactDiana(ctx context.Context, redis string) (http.Handler, error) {
	text := fmt.Sprintf("redis: %s\nlimits:\n", redis)
	for _, algorithm := range exactAlgorithms {
		text += fmt.Sprintf("- {url: /minute/%s, rules: [{actor: account, algo: %[1]s, unit: minute, rpu: %d, scope: global}]}\n", algorithm, exactMinute.N)
		text += fmt.Sprintf("- {url: /day/%s, rules: [{actor: account, algo: %[1]s, unit: day, rpu: %d, scope: global}]}\n", algorithm, exactDay.N)
	}
	l, err := openLimiter(ctx, text)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, key := path.Split(r.URL.Path)
		d, err := l.Take(r.Context(), dianalib.Request{Path: strings.TrimSuffix(limit, "/"), Actors: map[string]string{"account": key}})
		d.Done()
		answerExact(w, d.Allowed, d.Degraded, err)
	}), err
}

// answer is one request, in time since the phase began.
type answer struct {
	sent, received time.Duration
	kind           answerKind
}

type answerKind uint8

const (
	answerAllowed answerKind = iota
	answerRefused
	answerFailed // an error status, or a broken connection
	answerLate   // none within answerPatience
	answerAlone  // allowed without Redis
)

const answerPatience = time.Second

// counts returns how many requests were sent and answered between two moments, by the kind of the answer. It also counts
// those that were sent before and had no answer meanwhile. A waiting client sends nothing else, so all clients of a
// hanging system would be missing.
func counts(answers []answer, from, to time.Duration) (n [5]float64) {
	for _, a := range answers {
		if (a.sent >= from || a.kind == answerLate && a.received > from) && a.received <= to {
			n[a.kind]++
		}
	}
	return n
}

// ask sends a request for a key to a process, and returns what the answer means. Envoy's service offers HTTP beside gRPC.
func (s *exactSystem) ask(ctx context.Context, client *http.Client, p *measure.Server, key string) (answerKind, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address+s.path+"/"+key, nil)
	if s.name == rivals.Envoy {
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Address+"/json", strings.NewReader(fmt.Sprintf(
			`{"domain":%q,"descriptors":[{"entries":[{"key":"account","value":%q}]}]}`, rivals.EnvoyDomain, key)))
	}
	if err != nil {
		return answerFailed, err
	}
	response, err := client.Do(r)
	if err != nil {
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() || os.IsTimeout(err) {
			return answerLate, ctx.Err()
		}
		return answerFailed, ctx.Err()
	}
	_, _ = io.Copy(io.Discard, response.Body) // only the status counts
	_ = response.Body.Close()                 // nothing is lost
	kind, ok := map[int]answerKind{http.StatusOK: answerAllowed, http.StatusAccepted: answerAlone, http.StatusTooManyRequests: answerRefused}[response.StatusCode]
	if !ok {
		kind = answerFailed
	}
	return kind, nil
}

// becomesReady waits until every process allows a request by Redis.
func (s *exactSystem) becomesReady(ctx context.Context) error {
	client := &http.Client{Timeout: answerPatience, Transport: &http.Transport{DisableKeepAlives: true}}
	return testproc.Poll(testproc.Patience, func() error {
		for _, p := range s.processes {
			if kind, err := s.ask(ctx, client, p, "probe"); err != nil || kind != answerAllowed {
				return errors.Join(err, errors.New("a process does not decide"))
			}
		}
		return nil
	})
}

// drive lets clients ask for one key, most times altogether, or until during returns. Each client asks one process, again
// as soon as it has an answer, and at least once. A client that waited between requests would meet fewer of the moments
// in which a system is wrong.
func (s *exactSystem) drive(ctx context.Context, clients int, key string, began time.Time, most int64, during func() error) (all []answer, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: cmp.Or(s.waits, answerPatience)}
	var stopped atomic.Bool
	var requests atomic.Int64
	var mu sync.Mutex
	var done sync.WaitGroup
	for i := range clients {
		done.Go(func() {
			var own []answer
			var failed error
			for failed == nil && (own == nil || !stopped.Load()) && requests.Add(1) <= most {
				a := answer{sent: time.Since(began)}
				a.kind, failed = s.ask(ctx, client, s.processes[i%len(s.processes)], key)
				a.received = time.Since(began)
				own = append(own, a)
			}
			mu.Lock()
			defer mu.Unlock()
			all, err = append(all, own...), errors.Join(err, failed)
		})
	}
	var failed error
	if during != nil {
		failed = during()
		stopped.Store(true)
	}
	done.Wait()
	return all, errors.Join(err, failed)
}
