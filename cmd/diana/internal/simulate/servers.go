// SPDX-License-Identifier: MIT

package simulate

import "github.com/diana-limiter/diana/cmd/diana/internal/weblog"

// servers is a model of an upstream: one queue in front of so many servers. Each request takes one of them for as long as
// the log says that it was served, after those in front of it.
//
//	log     came |--- queue ---|--- served ---| answered     the queue of all requests of the log
//	model   came |- queue -|--- served ---| answered          that of the requests that the limits allow
type servers struct {
	inLog, inModel      idle
	requests, early     int64
	atOnce, afterOthers mean // how long requests were served that found a server free, and those that did not
}

// Model says how well the log fits so many servers.
type Model struct {
	Servers int `json:"servers"`

	// Early is the part of the requests that were answered before a server was free: there are too few servers.
	Early float64 `json:"early"`

	// Busy is how many times as long requests were served that came while all servers were busy. Above 1, they
	// waited longer than the model knows: there are too many servers. 0 means that too few requests tell.
	Busy float64 `json:"busy"`
}

func newServers(n int) *servers {
	return &servers{inLog: make(idle, n), inModel: make(idle, n)}
}

// respond returns the response to a request that came at a moment, in microseconds since the Unix epoch, as it would have
// been behind the requests that were allowed.
func (s *servers) respond(came int64, allowed bool, r weblog.Response) weblog.Response {
	if r.StatusAfter == weblog.Unknown {
		return r
	}
	began, answered := max(came, s.inLog[0]), came+r.StatusAfter
	served := answered - began
	s.requests++
	if served < 0 {
		s.early++
		served = 0
	}
	if began == came {
		s.atOnce.add(served)
	} else {
		s.afterOthers.add(served)
	}
	s.inLog.take(began + served)
	if !allowed {
		return r
	}
	began = max(came, s.inModel[0])
	s.inModel.take(began + served)
	sent := max(r.Duration-r.StatusAfter, 0) // of the body
	r.StatusAfter = began + served - came
	r.Duration = r.StatusAfter + sent
	return r
}

// fit returns how well the log fits, or nil without a model.
func (s *servers) fit() *Model {
	if s == nil {
		return nil
	}
	m := &Model{Servers: len(s.inLog), Early: float64(s.early) / float64(max(s.requests, 1))}
	if min(s.atOnce.n, s.afterOthers.n) >= 100 && s.atOnce.sum > 0 { // fewer are no mean
		m.Busy = s.afterOthers.value() / s.atOnce.value()
	}
	return m
}

// mean is a mean of durations in microseconds.
type mean struct{ n, sum int64 }

func (m *mean) add(d int64)    { m.n, m.sum = m.n+1, m.sum+d }
func (m *mean) value() float64 { return float64(m.sum) / float64(max(m.n, 1)) }

// idle is a heap of the moments at which servers are free, the first at its root.
type idle []int64

// take takes the server that is free first, until a moment.
func (s idle) take(until int64) {
	i := 0
	for {
		next := 2*i + 1
		if next+1 < len(s) && s[next+1] < s[next] {
			next++
		}
		if next >= len(s) || s[next] >= until {
			s[i] = until
			return
		}
		s[i] = s[next]
		i = next
	}
}
