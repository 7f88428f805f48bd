// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/billtest"
)

// The group budgets measures how far clients get a provider to bill more than their budget. 64 adversarial clients
// share one budget. In a wave each of them sends a request, and those that are allowed are in flight together; then they
// end, in another order. A quarter are streams whose client leaves after the first word. The provider bills the most
// that a request permits. Waves take no time, so the figures say nothing of this machine.

const (
	budgetWorkload = "64 adversarial clients, one budget"
	budgetClients  = 64
	budgetLimit    = 300_000 // tokens, weighed by billtest.Weights

	strictDiana   = "Diana, bound: strict"
	estimateDiana = "Diana, estimate"
)

// The figures are in per cent of the budget.
var (
	overBudget = measure.Figure{Name: "billed beyond", Format: measure.PlainText, Better: measure.Less}
	uncharged  = measure.Figure{Name: "not charged", Format: measure.PlainText, Better: measure.Less}
	usable     = measure.Figure{Name: "billed before \"used up\"", Format: measure.PlainText, Better: measure.More}
)

// keeper is what keeps a budget.
type keeper struct {
	name string
	kind measure.Kind
	open func(ctx context.Context, format string, next http.Handler) (*kept, error)
}

// kept is a handler in front of the provider, and how much it has charged.
type kept struct {
	http.Handler
	charged func() int64
	close   func()
}

func budgetsGroup() group {
	worst := func(what string, f measure.Figure) page.Line {
		return page.Custom(what, func(r *measure.Report) (m page.Measured, ok bool) {
			row := r.Find(budgetWorkload, strictDiana)
			if row == nil {
				return m, false
			}
			m.Value = worstRound(row, f)
			m.Diana = f.Format(m.Value)
			return m, true
		})
	}
	return group{measure: measureBudgets, Chapter: page.Chapter{
		Name: "budgets", Title: "Budgets", Table: budgetsTable, Figures: []measure.Figure{overBudget, uncharged, usable},
		Lines: []page.Line{
			worst("Billed beyond a strict budget", overBudget).Must("T1", page.AtMost(overBudget, 0)),
			worst("Billed before a strict budget is used up", usable).Must("T1", page.Bound{Text: "≥ 90", Met: func(m page.Measured) bool { return m.Value >= 90 }}),
		},
	}}
}

// worstRound returns a figure of the worst round.
func worstRound(m *measure.Row, f measure.Figure) float64 {
	if f.Better == measure.More {
		return slices.Min(m.Series(f).Rounds)
	}
	return slices.Max(m.Series(f).Rounds)
}

// budgetsTable has a row for each system.
func budgetsTable(r *measure.Report) string {
	var lines [][]string
	for _, m := range r.Rows {
		if m.Workload == budgetWorkload {
			cells := []string{m.System}
			for _, f := range []measure.Figure{overBudget, uncharged, usable} {
				cells = append(cells, f.Format(worstRound(m, f)))
			}
			lines = append(lines, cells)
		}
	}
	return page.Table([]string{"Budgets: per cent, worst round", overBudget.Name, uncharged.Name, usable.Name}, lines) + "\n"
}

func measureBudgets(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "", func(y *measure.Yard) error {
		keepers := []keeper{dianaKeeper(strictDiana, "bytes, add: 100, bound: strict"), dianaKeeper(estimateDiana, "estimate"), litellmKeeper()}
		if service := rivals.BuildEnvoy(ctx, r, y); service.Built() {
			redis, stop, err := measure.StartRedis(r)
			if err != nil {
				return err
			}
			defer stop()
			if err := service.Limit(fmt.Sprintf("{key: budget, rate_limit: {unit: month, requests_per_unit: %d}}", budgetLimit)); err != nil {
				return err
			}
			server, err := y.Start(service.Command(redis, y.FreeAddress()))
			if err != nil {
				return err
			}
			keepers = append(keepers, envoyKeeper("http://"+server.Address+"/json"))
		}
		return r.Interleave(ctx, len(keepers), func(round, i int) error {
			row := r.Row(budgetWorkload, keepers[i].name, keepers[i].kind)
			var over, missing float64
			share := 100.
			for _, format := range []string{"openai", "anthropic"} {
				a := &attack{seed: uint64(round), waves: r.Count(2000)}
				if err := a.run(ctx, &keepers[i], format); err != nil {
					return fmt.Errorf("%s: %w", keepers[i].name, err)
				}
				part := func(n int64) float64 { return 100 * float64(n) / budgetLimit }
				over = max(over, part(a.billed-budgetLimit))
				missing = max(missing, part(a.billed-a.charged))
				share = min(share, part(a.before))
			}
			row.Add(overBudget, over)
			row.Add(uncharged, missing)
			row.Add(usable, share)
			return nil
		})
	})
}

// attack is a run of the clients against one budget.
type attack struct {
	seed  uint64
	waves int // at most

	billed, charged int64
	before          int64 // was billed when a client first got "used up"
	usedUp          bool
}

// flight is a request that the provider has got.
type flight struct {
	cost          int64
	inside, leave chan struct{}
	done          chan struct{}
	answer        *httptest.ResponseRecorder
}

type flightKey struct{}

func (a *attack) run(ctx context.Context, k *keeper, format string) error {
	provider := &billtest.Provider{Format: format, Billed: func(r *http.Request, _ []byte, cost int64) {
		f := r.Context().Value(flightKey{}).(*flight)
		f.cost = cost
		close(f.inside)
		<-f.leave
	}}
	h, err := k.open(ctx, format, provider)
	if err != nil {
		return err
	}
	defer h.close()
	rand := rand.New(rand.NewPCG(a.seed, 1))
	for further := 20; a.waves > 0 && further > 0; a.waves-- {
		if a.usedUp {
			further-- // because reservations in flight may be refunded
		}
		var flying []*flight
		var left []context.CancelFunc
		for range budgetClients {
			body, gone := billtest.Adversary(rand, format), context.CancelFunc(nil)
			f := &flight{inside: make(chan struct{}), leave: make(chan struct{}), done: make(chan struct{}), answer: httptest.NewRecorder()}
			ctx := context.WithValue(ctx, flightKey{}, f)
			if rest, ok := strings.CutPrefix(body, "{"); ok && rand.IntN(4) == 0 {
				body = `{"stream":true,` + rest
				ctx, gone = context.WithCancel(ctx)
				defer gone()
			}
			go func() {
				defer close(f.done)
				h.ServeHTTP(f.answer, httptest.NewRequest(http.MethodPost, "/v1/x", strings.NewReader(body)).WithContext(ctx))
			}()
			select {
			case <-f.inside:
				a.billed += f.cost
				flying, left = append(flying, f), append(left, gone)
			case <-f.done:
				// A busy Diana says so by a short wait. A total never becomes free, so "used up" has none.
				if !a.usedUp && f.answer.Code == http.StatusTooManyRequests && f.answer.Header().Get("Retry-After") == "" {
					a.usedUp, a.before = true, a.billed
				}
			}
		}
		for _, i := range rand.Perm(len(flying)) {
			if left[i] != nil {
				left[i]()
				time.Sleep(100 * time.Microsecond) // so that a gateway notices before the provider goes on
			}
			close(flying[i].leave)
			<-flying[i].done
		}
	}
	if !a.usedUp {
		a.before = a.billed
	}
	a.charged = h.charged()
	return nil
}

// dianaKeeper is a rule of Diana that reserves the output and so much input.
func dianaKeeper(name, input string) keeper {
	return keeper{name, measure.Diana, func(ctx context.Context, format string, next http.Handler) (*kept, error) {
		l, err := openLimiter(ctx, fmt.Sprintf(`limits: [{url: /, refusal: openai, rules: [{unit: total, algo: W, rpu: %d, cost: {answer: %s, weights: %s,
			reserve: {output: auto, or: 100, most: %d, set: true, input: %s}}}]}]`, budgetLimit, format, billtest.Weights, billtest.Most, input))
		if err != nil {
			return nil, err
		}
		return &kept{l.Handler(next), func() int64 { return l.Status().Rules[0].Cost }, func() { closeLimiter(l) }}, nil
	}}
}
