// SPDX-License-Identifier: MIT

package gateway

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rejections counts the requests of other gateways that get no decision, and those for a domain that no
// file has. It logs some of them, because each is a mistake in the configuration of a gateway, which
// sees only that it gets an error, or that everything is allowed.
type rejections struct {
	logger  *slog.Logger
	total   *prometheus.CounterVec // by reason
	unknown prometheus.Counter     // requests for unknown domains
	lines   seldom
}

// Reasons of the metric diana_rejected_total. Package diana has others, for paths.
const (
	reasonPeer    = "peer"    // the address may not ask
	reasonInvalid = "invalid" // the request is not valid
)

func newRejections(logger *slog.Logger) *rejections {
	r := &rejections{
		logger: logger,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "diana_rejected_total",
			Help: "Requests that were answered before any rule, by reason.", // as in package prometheus
		}, []string{"reason"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "diana_descriptors_unknown_domain_total",
			Help: "Requests to the rate limit service whose domain no file of --descriptors has. They are allowed.",
		}),
	}
	for _, reason := range []string{reasonPeer, reasonInvalid} { // exported from the start, so that the first one is an increase
		r.total.WithLabelValues(reason)
	}
	return r
}

// registry returns the metrics. They need a registry of their own, because package prometheus registers
// diana_rejected_total too, with other reasons.
func (r *rejections) registry() *prometheus.Registry {
	own := prometheus.NewRegistry()
	own.MustRegister(r.total, r.unknown)
	return own
}

// peer notes a request from an address that may not ask.
func (r *rejections) peer(address string) {
	r.total.WithLabelValues(reasonPeer).Inc()
	if n := r.lines.due(reasonPeer + " " + address); n > 0 {
		r.logger.Warn("request of a gateway rejected: its address is not among identity.trusted_proxies", "reason", reasonPeer, "peer", address, "count", n)
	}
}

// invalid notes a request that is not valid, and why.
func (r *rejections) invalid(why string) {
	r.total.WithLabelValues(reasonInvalid).Inc()
	why = clip(why)
	if n := r.lines.due(reasonInvalid + " " + why); n > 0 {
		r.logger.Warn("request of a gateway rejected: it is not valid", "reason", reasonInvalid, "error", why, "count", n)
	}
}

// unknownDomain notes a request for a domain that no file has. near returns a similar domain that one has,
// or "".
func (r *rejections) unknownDomain(domain string, near func() string) {
	r.unknown.Inc()
	short := clip(domain)
	n := r.lines.due("domain " + short)
	if n == 0 {
		return
	}
	attrs := []any{"limits", "descriptors", "domain", short, "count", n}
	if like := near(); like != "" && len(domain) == len(short) {
		attrs = append(attrs, "similar", like)
	}
	r.logger.Warn("no file of --descriptors has this domain: its requests are allowed", attrs...)
}

// mostText is how much of the text of a client a line has, in bytes.
const mostText = 256

func clip(text string) string { return text[:min(len(text), mostText)] }

// seldom bounds the lines of a log about things that clients can repeat: a line a minute about the same,
// and about mostThings things. The zero value is ready. It is safe for concurrent use.
type seldom struct {
	mu     sync.Mutex
	things map[string]*thing
}

// thing is what a line was about.
type thing struct {
	at    time.Time // of the line
	since int64     // how often it happened after that
}

const (
	sameEvery  = time.Minute
	mostThings = 10
)

// due notes that a thing happens. It returns for how many times a line is due, or 0 if none is.
func (s *seldom) due(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := s.things[name]
	if t == nil {
		if len(s.things) >= mostThings {
			maps.DeleteFunc(s.things, func(_ string, t *thing) bool { return now.Sub(t.at) >= sameEvery })
		}
		if len(s.things) >= mostThings {
			return 0
		}
		if s.things == nil {
			s.things = map[string]*thing{}
		}
		t = new(thing)
		s.things[name] = t
	}
	if t.since++; !t.at.IsZero() && now.Sub(t.at) < sameEvery {
		return 0
	}
	n := t.since
	t.at, t.since = now, 0
	return n
}
