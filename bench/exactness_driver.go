// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/internal/testproc"
)

const (
	exactClients   = 64
	answerPatience = time.Second // how long a client waits for an answer
)

// ask sends a request and returns what the answer means.
func ask(client *http.Client, r *http.Request) answerKind {
	response, err := client.Do(r)
	if err != nil {
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() || os.IsTimeout(err) {
			return answerLate
		}
		return answerFailed
	}
	_, _ = io.Copy(io.Discard, response.Body) // only the status counts
	_ = response.Body.Close()                 // nothing is lost
	switch response.StatusCode {
	case http.StatusOK:
		return answerAllowed
	case http.StatusTooManyRequests:
		return answerRefused
	}
	return answerFailed
}

// start starts three servers of a system that shares Redis, and one of any other. Processes that share nothing would
// allow three times their promise, which says nothing about the system.
func (x *exactYard) start(s *exactSystem, command measure.Command) error {
	n := 1
	if s.redis {
		n = gateways
	}
	for range n {
		p, err := x.Start(command)
		if err != nil {
			return err
		}
		s.processes = append(s.processes, p)
	}
	return nil
}

// stop ends the servers of a system.
func (s *exactSystem) stop() {
	for _, p := range s.processes {
		_ = p.Kill() // nothing is lost
	}
	s.processes = nil
}

// clientsOf sends requests for one key to the processes of a system, until stop is called, or most of them if that is
// not 0. The times of the answers are since began. Each client asks one process, again as soon as it has an answer. A
// client that waited between requests would meet fewer of the moments in which a system is wrong, such as the edges of
// windows.
func clientsOf(ctx context.Context, s *exactSystem, unit, key string, began time.Time, most int64) (stop func() []answer) {
	transport := &http.Transport{MaxIdleConnsPerHost: exactClients, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: answerPatience}
	var stopped atomic.Bool
	var requests atomic.Int64
	var mu sync.Mutex
	var done sync.WaitGroup
	var all []answer
	for i := range exactClients {
		address := s.processes[i%len(s.processes)].Address
		done.Go(func() {
			var own []answer
			for asked := false; !asked || !stopped.Load(); asked = true { // at least once, however late it starts
				if most > 0 && requests.Add(1) > most {
					break
				}
				r, err := s.request(ctx, address, unit, key)
				if err != nil || ctx.Err() != nil {
					break // a mistake in this program: the phase has no answers
				}
				sent := time.Since(began)
				kind := ask(client, r)
				own = append(own, answer{sent, time.Since(began), kind})
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	return func() []answer {
		stopped.Store(most == 0)
		done.Wait()
		transport.CloseIdleConnections()
		return all
	}
}

// step is something that happens to a system while clients ask.
type step struct {
	at time.Duration
	do func() error
}

// history lets clients ask a system for a while. It also returns the time between the first step's end and
// the last step's begin. During a step nobody knows whether Redis still answers, or answers again. If used is not 0, the
// first step comes after so many requests, and before the others.
func (s *exactSystem) history(ctx context.Context, unit, key string, used int64, d time.Duration, steps ...step) (h *history, outage [2]time.Duration, err error) {
	began := time.Now()
	var first []answer
	if used > 0 {
		first = clientsOf(ctx, s, unit, key, began, used)()
		if err := steps[0].do(); err != nil {
			return nil, outage, err
		}
		steps = steps[1:]
	}
	stop := clientsOf(ctx, s, unit, key, began, 0)
	for i, next := range steps {
		time.Sleep(next.at - time.Since(began))
		outage[1] = time.Since(began)
		if err = next.do(); err != nil {
			break
		}
		if i == 0 {
			outage[0] = time.Since(began)
		}
	}
	if err == nil {
		time.Sleep(d - time.Since(began))
	}
	answers := append(first, stop()...)
	if err == nil && len(answers) == 0 {
		err = errors.New("no answer")
	}
	return newHistory(began, answers), outage, err
}

// counts returns how many requests were sent and answered between two moments, by the kind of the answer.
// It also counts those that were sent before and had no answer meanwhile. A waiting client sends nothing else, so all
// clients of a hanging system would be missing.
func (h *history) counts(from, to time.Duration) (n [4]float64) {
	for _, a := range h.answers {
		if (a.sent >= from || a.kind == answerLate && a.received > from) && a.received <= to {
			n[a.kind]++
		}
	}
	return n
}

// becomesReady waits until every process decides as it does without faults. Each probe has a connection of its own,
// because an old one may lead to a worker of nginx that a reload has replaced.
func (s *exactSystem) becomesReady(ctx context.Context) error {
	client := &http.Client{Timeout: answerPatience, Transport: &http.Transport{DisableKeepAlives: true}}
	return testproc.Poll(testproc.Patience, func() error {
		for _, p := range s.processes {
			r, err := s.probe(ctx, p.Address)
			if err != nil {
				return err
			}
			if kind := ask(client, r); ctx.Err() == nil && kind != answerAllowed && kind != answerRefused {
				return errors.New("a process does not decide")
			}
		}
		return nil
	})
}

// probe makes a request that tells whether a process decides.
func (s *exactSystem) probe(ctx context.Context, address string) (*http.Request, error) {
	if s.library {
		return http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+probePath, nil)
	}
	return s.request(ctx, address, "second", "probe")
}

// request makes the request for a key. Envoy's service offers HTTP beside gRPC.
func (s *exactSystem) request(ctx context.Context, address, unit, key string) (*http.Request, error) {
	if s.body == nil {
		return http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/"+unit+"/"+key, nil)
	}
	return http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/json", strings.NewReader(s.body(unit, key)))
}

// allowedAlone returns how many requests the processes have allowed without Redis, as Diana reports.
func (s *exactSystem) allowedAlone() (sum float64, err error) {
	if s.kind != measure.Diana || !s.redis {
		return 0, nil
	}
	for _, p := range s.processes {
		text, err := get("http://" + p.Address + alonePath)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// get returns the text at a URL.
func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // nothing is lost
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return string(text), err
}
