// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The group middleware measures what an allowed request costs beyond the bare handler of the same
// framework, on one thread and without a network.

var (
	nsOver      = measure.Figure{Name: "ns over bare", Format: measure.NsText}
	allocsOver  = measure.Figure{Name: "allocs over", Format: measure.FewText}
	bytesOver   = measure.Figure{Name: "bytes over", Format: measure.PlainText}
	requestTime = measure.Figure{Name: "request", Format: measure.NsText, Better: measure.Neither} // complete
)

// The names that lines mention.
const (
	middlewareWorkload = "an allowed request"

	dianaOneRule  = "Diana, 1 rule by IP, 1 URL, RateLimit fields"
	bareHandler   = "bare handler"
	fieldsHandler = "bare handler that sets two fields"
)

// inFramework makes the name of the workload of a framework. "" is net/http.
func inFramework(name string) string {
	if name == "" {
		return middlewareWorkload
	}
	return middlewareWorkload + " in " + name
}

// dianaHandler makes the name of a handler with three rules and that many URLs.
func dianaHandler(urls int, fields bool) string {
	return inFull(fmt.Sprintf("Diana, 3 rules, %d URLs", urls), fields)
}

// dianaWith makes the name of Diana with one rule in a framework.
func dianaWith(s rivals.Scope, fields bool) string { return inFull("Diana, "+string(s), fields) }

func inFull(name string, fields bool) string {
	if fields {
		name += ", RateLimit fields"
	}
	return name
}

// middleware is a limiter in front of a handler, or a handler without one.
type middleware struct {
	workload string
	name     string
	kind     measure.Kind
	scope    rivals.Scope
	fields   bool // the responses have fields of the limiter

	// open opens it for so many requests a minute.
	open func(ctx context.Context, limit int) (c rivals.Client, stop func(), err error)
}

// plenty is a limit that the group does not reach.
const plenty = 1_000_000_000

func middlewareGroup() group {
	one, inGRPC, oneFields := middlewareWorkload, inFramework("gRPC"), dianaWith(rivals.PerAddress, true)
	plain, fields := dianaHandler(1000, false), dianaHandler(1000, true)
	lines := []page.Line{page.Compare("1 rule by IP, RateLimit fields, over the bare handler", one, nsOver, dianaOneRule, page.BestRival)}
	for _, name := range []string{"gin", "echo", "chi", "fiber"} {
		lines = append(lines, page.Compare("the same in "+name, inFramework(name), nsOver, oneFields, page.BestRival))
	}
	plainRule, fiberPlain := dianaWith(rivals.PerAddress, false), rivals.FiberPlain+", "+string(rivals.PerAddress)
	inHTTP, inFiber := roundsOf(one, nsOver, plainRule), roundsOf(inFramework("fiber"), nsOver, fiberPlain)
	for i, name := range []string{"gin", "echo", "chi", "gRPC", "Connect"} {
		most := []float64{1.1, 1.1, 1.1, 2, 2}[i]
		lines = append(lines, times("1 rule by IP, no fields, in "+name+" beside net/http", roundsOf(inFramework(name), nsOver, plainRule), inHTTP, "M4", most))
	}
	floor := roundsOf(threadsName(localPlenty, 1), nsDecision, rivals.CASFloor)
	lines = append(lines,
		page.Compare("1 rule by IP, no fields, in fiber", inFramework("fiber"), nsOver, plainRule, fiberPlain).Must("M4", page.RatioAtLeast(0.83)),
		times("1 rule by IP, no fields, in hertz beside fiber's limiter", roundsOf(inFramework("hertz"), nsOver, plainRule), inFiber, "M4", 1.2))
	return group{measure: measureMiddleware, Chapter: page.Chapter{
		Name: "middleware", Title: "As middleware",
		Figures: []measure.Figure{nsOver, requestTime, allocsOver, bytesOver},
		Lines: append(lines,
			page.Compare("1 rule for all calls in gRPC, over the bare handler", inGRPC, nsOver, dianaWith(rivals.ForEvery, false), page.BestRival),
			page.Compare("1 rule by IP in gRPC, over the bare handler", inGRPC, nsOver, plainRule, rivals.GRPCRival+", "+string(rivals.ForEvery)),
			page.Compare("3 rules, 1,000 URLs, over the bare handler", one, nsOver, plain),
			times("the same beside clock and compare-and-swap", roundsOf(one, nsOver, plain), floor, "M1", 25),
			page.Compare("3 rules, 1,000 URLs: allocations", one, allocsOver, plain).Must("M1", page.AtMost(allocsOver, 0)),
			page.Compare("3 rules, 1,000 URLs, fields, over the bare handler", one, nsOver, fields),
			times("the same, over one that sets two fields, beside clock and compare-and-swap", roundsOf(one, nsOver, fields, fieldsHandler), floor, "M1", 31),
			page.Compare("3 rules, 1,000 URLs, fields: allocations", one, allocsOver, fields).Must("M1", page.AtMost(allocsOver, 4)),
			page.Compare("10,000 URLs beside 10", one, nsOver, dianaHandler(10_000, false), dianaHandler(10, false)).Must("M2", page.RatioAtMost(1.3)),
			page.Compare("the same with fields", one, nsOver, dianaHandler(10_000, true), dianaHandler(10, true)).Must("M2", page.RatioAtMost(1.3)),
		),
	}}
}

var timesOther = measure.Figure{Name: "times the other", Format: measure.RatioText}

// roundsOf returns the rounds of a figure, less those of another system of the workload if there is one.
func roundsOf(workload string, f measure.Figure, system string, less ...string) func(*measure.Report) []float64 {
	return func(r *measure.Report) (rounds []float64) {
		s := r.Find(workload, system).Series(f)
		if s == nil {
			return nil
		}
		rounds = slices.Clone(s.Rounds)
		for _, name := range less {
			other := r.Find(workload, name).Series(f)
			if other == nil {
				return nil
			}
			for i := range rounds {
				rounds[i] -= other.Rounds[i]
			}
		}
		return rounds
	}
}

// times is a line that divides rounds by those of another workload, and has a target.
func times(what string, ours, theirs func(*measure.Report) []float64, target string, most float64) page.Line {
	return page.Custom(what, func(r *measure.Report) (m page.Measured, ok bool) {
		x, y := ours(r), theirs(r)
		if x == nil || y == nil {
			return m, false
		}
		m.Value = measure.MedianRatio(x, y)
		m.Diana = measure.RatioText(m.Value)
		return m, true
	}).Must(target, page.AtMost(timesOther, most))
}

// dianaIn returns Diana in a framework, with the configuration that text makes of a limit.
func dianaIn(f rivals.Framework, name string, s rivals.Scope, fields bool, text func(limit int) string) middleware {
	return middleware{inFramework(f.Name), name, measure.Diana, s, fields, func(ctx context.Context, limit int) (rivals.Client, func(), error) {
		l, err := openLimiter(ctx, fmt.Sprintf("response: {headers: %v}\n", fields)+text(limit))
		if err != nil {
			return nil, nil, err
		}
		return f.Diana(l), func() { closeLimiter(l) }, nil
	}}
}

// oneRule returns Diana with one rule in a framework.
func oneRule(f rivals.Framework, s rivals.Scope, fields bool) middleware {
	actor := map[rivals.Scope]string{rivals.PerAddress: "actor: ip, "}[s]
	return dianaIn(f, dianaWith(s, fields), s, fields, func(limit int) string {
		return fmt.Sprintf("limits: [{url: /, rules: [{%sunit: minute, rpu: %d}]}]\n", actor, limit)
	})
}

// without returns what a framework measures without Diana: a floor or a rival.
func without(f rivals.Framework, name string, k measure.Kind, s rivals.Scope, fields bool, open func(limit int) (rivals.Client, error)) middleware {
	return middleware{inFramework(f.Name), name, k, s, fields, func(_ context.Context, limit int) (rivals.Client, func(), error) {
		c, err := open(limit)
		return c, func() {}, err
	}}
}

// floorIn returns a handler without a limiter.
func floorIn(f rivals.Framework, name string, fields bool, c rivals.Client) middleware {
	return without(f, name, measure.Floor, rivals.Unlimited, fields, func(int) (rivals.Client, error) { return c, nil })
}

// rulesOf returns a configuration with that many URLs. One URL has three rules.
func rulesOf(urls, limit int) string {
	var text strings.Builder
	text.WriteString("limits:\n")
	for i := range urls {
		more := ""
		if i == rivals.URLAsked {
			more = fmt.Sprintf(", {actor: ip, rpu: %d}, {actor: device, rpu: %d}", limit, limit)
		}
		fmt.Fprintf(&text, "- {url: /api/v%d/orders, rules: [{rpu: %d}%s]}\n", i, limit, more)
	}
	return text.String()
}

// middlewareOf returns all that the group measures in a framework, the bare handler last. gRPC's rival has one bucket
// for all calls, so one row of Diana has one rule for all.
func middlewareOf(r *measure.Run, f rivals.Framework) (all []middleware) {
	switch f.Name {
	case "":
		for _, urls := range []int{1000, 10, 10_000} {
			entries := max(rivals.URLAsked+1, r.Count(urls))
			for _, fields := range []bool{false, true} {
				all = append(all, dianaIn(f, dianaHandler(urls, fields), rivals.ThreeRules, fields, func(limit int) string { return rulesOf(entries, limit) }))
			}
		}
		one := oneRule(f, rivals.PerAddress, true)
		one.name = dianaOneRule
		// Any handler pays this for two fields, because the recorder allocates room for them and copies
		// them when the response begins.
		setsFields := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Ratelimit-Policy"] = []string{"policy"}
			w.Header()["Ratelimit"] = []string{"left"}
			rivals.NoContent(w, r)
		})
		all = append(all, one, oneRule(f, rivals.PerAddress, false), floorIn(f, fieldsHandler, true, rivals.ToHTTP(setsFields)))
	case "gRPC":
		all = append(all, oneRule(f, rivals.ForEvery, false), oneRule(f, rivals.PerAddress, false), oneRule(f, rivals.PerAddress, true))
	default:
		all = append(all, oneRule(f, rivals.PerAddress, true), oneRule(f, rivals.PerAddress, false))
	}
	for _, m := range f.Rivals {
		all = append(all, without(f, m.Name+", "+string(m.Scope), measure.Rival, m.Scope, !m.Plain, m.Open))
	}
	return append(all, floorIn(f, bareHandler, false, f.Bare))
}

func measureMiddleware(ctx context.Context, r *measure.Run) error {
	frameworks := rivals.Frameworks()
	all, workers := make([][]middleware, len(frameworks)), make([][]measure.Worker, len(frameworks))
	for i, f := range frameworks {
		r.Note("  %s", inFramework(f.Name))
		all[i] = middlewareOf(r, f)
		for _, m := range all[i] {
			send, stop, err := m.opened(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", m.workload, m.name, err)
			}
			defer stop()
			workers[i] = append(workers[i], again(send))
		}
	}
	return r.Interleave(ctx, len(frameworks), func(_, i int) error {
		costs, err := r.Slices(1, workers[i]...)
		for k, c := range costs {
			m := all[i][k]
			row, bare := r.Working(m.workload, m.name, inFull(string(m.scope), m.fields), m.kind), costs[len(costs)-1]
			row.Add(requestTime, c.Ns)
			if m.name != bareHandler {
				row.Add(nsOver, c.Ns-bare.Ns)
				row.Add(allocsOver, c.Allocs-bare.Allocs)
				row.Add(bytesOver, c.Bytes-bare.Bytes)
			}
		}
		return err
	})
}

// again is the work of one thing.
func again(send func()) measure.Worker {
	return func(int) func(int) {
		return func(n int) {
			for range n {
				send()
			}
		}
	}
}

// Addresses of clients.
const oneAddress, otherAddress = "192.0.2.1", "192.0.2.2"

// opened returns what sends an allowed request to the middleware, after check.
func (m *middleware) opened(ctx context.Context) (send, stop func(), err error) {
	if err := m.check(ctx); err != nil {
		return nil, nil, err
	}
	c, stop, err := m.open(ctx, plenty)
	if err != nil {
		return nil, nil, err
	}
	r := c(oneAddress)
	if d, _ := decisionOf(r); d != "allowed" {
		stop()
		return nil, nil, errors.New(d)
	}
	return r.Send, stop, nil
}

// check returns an error unless the middleware refuses what is beyond a limit of 1, and nothing else. A
// limiter that finds no rule is fast.
func (m *middleware) check(ctx context.Context) error {
	c, stop, err := m.open(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	first, fields := decisionOf(c(oneAddress))
	second, _ := decisionOf(c(oneAddress))
	third, _ := decisionOf(c(otherAddress))
	want := map[rivals.Scope]string{
		rivals.Unlimited:  "allowed, allowed, allowed",
		rivals.PerAddress: "allowed, refused, allowed",
		rivals.ForEvery:   "allowed, refused, refused",
		rivals.ThreeRules: "allowed, refused, refused",
	}[m.scope]
	if got := first + ", " + second + ", " + third; got != want {
		return fmt.Errorf("two requests of one address and one of another: %s; expected %s", got, want)
	}
	if got := hasLimitField(fields); got != m.fields {
		return fmt.Errorf("a response has fields of a limiter: %v, expected %v", got, m.fields)
	}
	if members := strings.Split(strings.Join(fields["Ratelimit"], ","), ","); m.scope == rivals.ThreeRules && m.fields && len(members) != 3 {
		return fmt.Errorf("the rules of the request are %q, expected 3", members)
	}
	return nil
}

// decisionOf sends a request. It returns the decision that the response is about, and the fields.
func decisionOf(r *rivals.Request) (decision string, fields map[string][]string) {
	r.Send()
	switch status, fields := r.Answer(); status {
	case http.StatusNoContent:
		return "allowed", fields
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return "refused", fields
	default:
		return fmt.Sprintf("status %d", status), fields
	}
}

// hasLimitField reports whether there is a field such as RateLimit or X-Rate-Limit-Remaining.
func hasLimitField(fields map[string][]string) bool {
	for name := range fields {
		if strings.Contains(strings.ReplaceAll(strings.ToLower(name), "-", ""), "ratelimit") {
			return true
		}
	}
	return false
}
