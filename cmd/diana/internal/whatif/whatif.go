// SPDX-License-Identifier: MIT

// Package whatif evaluates a proposed configuration. It reports whether the configuration is valid, and how
// it differs from the one in force. It also replays the latest requests under both.
package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

// Options configure a WhatIf. Ring may be nil.
type Options struct {
	Ring       *history.Ring // nil: the gateway remembers no request
	Vocabulary config.Vocabulary
	Config     func() *config.Config // in force
	Status     func() diana.Status
	Rejected   func() map[string]int64    // of the limiter
	Accept     func(*config.Config) error // of the limiter

	Longest time.Duration // of a replay; 0: 10 s

	// Stranger reports whether nothing shows that the sender of a request is an operator.
	Stranger func(*http.Request) bool
}

// WhatIf evaluates proposed configurations. It is safe for concurrent use, and evaluates one at a time.
type WhatIf struct {
	options Options
	running gate // closed during a replay
	parsing gate // closed while a text is parsed
}

// New returns a WhatIf.
func New(o Options) *WhatIf {
	o.Longest = cmp.Or(o.Longest, longest)
	return &WhatIf{options: o, running: make(gate, 1), parsing: make(gate, 1)}
}

// Register adds the routes of the API to mux.
func (w *WhatIf) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/recent", func(out http.ResponseWriter, _ *http.Request) {
		adminapi.Answer(out, w.options.Ring.Status())
	})
	mux.HandleFunc("POST /api/v1/validate", w.validate)
	mux.HandleFunc("POST /api/v1/compare", w.compare)
	mux.HandleFunc("POST /api/v1/whatif", w.whatIf)
}

// Result is what POST /api/v1/whatif answers.
type Result struct {
	Diff   []string         `json:"diff"`
	Report *simulate.Report `json:"report"` // of the configuration in force, against the proposed one
	Notes  simulate.Notes   `json:"notes"`  // what the report cannot know
}

// errors of Compute.
var (
	errBusy = errors.New("another what-if is running, try again when it has ended")
	errNone = errors.New("this gateway remembers no request, expected --recent with a number above 0")
)

// unfinished is the error of a replay that took too long.
type unfinished struct{ done, of int }

func (u unfinished) Error() string {
	return fmt.Sprintf("the replay took too long, and came to request %d of %d", u.done, u.of)
}

const (
	longest = 10 * time.Second

	// A replay works for so long and then pauses, so that requests find a free processor.
	work  = time.Millisecond
	pause = time.Millisecond / 2
)

// Compute evaluates a proposed configuration on the latest requests. If another one is evaluated it waits, or returns
// an error without wait.
func (w *WhatIf) Compute(ctx context.Context, proposed *config.Config, wait bool) (*Result, error) {
	if w.options.Ring == nil {
		return nil, errNone
	}
	if !w.running.enter(ctx, wait) {
		return nil, errBusy
	}
	defer w.running.leave()
	ctx, cancel := context.WithTimeout(ctx, w.options.Longest)
	defer cancel()
	now := w.options.Config()
	r, err := w.newReplay(now, proposed)
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	result := &Result{Diff: append([]string{}, diff.Configs(now, proposed)...), Notes: w.notes(r, now, proposed)}
	result.Report = r.comparison.Report([]weblog.File{{Name: "the latest requests", Lines: r.requests.Len(), Requests: r.requests.Len()}})
	return result, nil
}

// replay is the replay of the latest requests under two configurations.
type replay struct {
	requests   *history.Snapshot
	comparison *simulate.Comparison
	compared   int // decisions of the gateway by the configuration in force
	same       int // of those, how many the replay makes too
	inForce    *config.Config
	done       int // requests, in both passes
	began      time.Time
}

func (w *WhatIf) newReplay(now, proposed *config.Config) (*replay, error) {
	r := &replay{requests: w.options.Ring.Snapshot(), inForce: now}
	r.requests.Label(w.options.Ring, proposed)
	first, err := simulate.NewCount(now, w.options.Vocabulary)
	if err != nil {
		return nil, err
	}
	second, err := simulate.NewCount(proposed, w.options.Vocabulary)
	if err != nil {
		return nil, err
	}
	r.comparison = simulate.NewComparison(r.requests.Names(), first, second)
	return r, nil
}

// run evaluates the requests, after it has found out what the counters were at the first one.
func (r *replay) run(ctx context.Context) error {
	earlier := simulate.NewEarlier(r.requests.Names(), r.requests.Whole)
	for i := range r.requests.Len() {
		if err := r.pause(ctx); err != nil {
			return err
		}
		earlier.Look(r.requests.Set(i), r.requests.Entry(i))
	}
	earlier.Finish()
	r.comparison.Begin(earlier)
	for i := range r.requests.Len() {
		if err := r.pause(ctx); err != nil {
			return err
		}
		e := r.requests.Entry(i)
		outcomes, err := r.comparison.Play(e)
		if err != nil {
			return err
		}
		if r.requests.Config(i) == r.inForce && outcomes[0].Evaluated {
			if r.compared++; outcomes[0].Allowed == e.Allowed {
				r.same++
			}
		}
	}
	return nil
}

// pause pauses now and then, because requests of now go first. It looks at the clock and at ctx for one request of 64,
// which costs little. The first of these is the first of all, so a replay without time does nothing.
func (r *replay) pause(ctx context.Context) error {
	if r.done++; r.done%64 != 1 || r.done > 1 && time.Since(r.began) <= work {
		return nil
	}
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return unfinished{r.done / 2, r.requests.Len()}
		}
		return ctx.Err()
	case <-time.After(pause):
	}
	r.began = time.Now()
	return nil
}
