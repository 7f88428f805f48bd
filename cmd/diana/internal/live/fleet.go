// SPDX-License-Identifier: MIT

package live

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/internal/minutes"
)

// Fleet has the decisions of the last day by minute.
type Fleet struct {
	Available bool     `json:"available"` // of all gateways; false: of this one
	Reason    string   `json:"reason"`    // why not
	Minutes   []Minute `json:"minutes"`
}

// Minute has the decisions of one minute.
type Minute struct {
	At       time.Time `json:"at"`
	Allowed  int64     `json:"allowed"`
	Refused  int64     `json:"refused"`
	Delayed  int64     `json:"delayed"`
	Shadow   int64     `json:"shadow"`
	Gateways int       `json:"gateways"` // that have reported the minute
}

const (
	fleetWithin   = 2 * time.Second
	fleetFresh    = time.Second      // for so long all clients share an answer
	latelyChanged = 10 * time.Minute // these minutes are read each time,
	wholeDayEvery = time.Minute      // and the others so often, because they seldom change
)

// fleet reads the minutes of all gateways, for all clients together. The zero value has read nothing.
type fleet struct {
	mu      sync.Mutex // guards the rest; held while Redis is asked, so that clients share the answer
	minutes map[int64]Minute
	at      time.Time // of the latest answer
	whole   time.Time // of the latest one that was read as a whole
	err     error     // of the latest answer
}

// read returns the minutes of all gateways, the oldest first.
func (f *fleet) read(ctx context.Context, limiter Limiter) ([]Minute, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.at.IsZero() || now.Sub(f.at) >= fleetFresh {
		f.err = f.ask(ctx, limiter, now)
		f.at = time.Now()
	}
	if f.err != nil {
		return nil, f.err
	}
	return slices.SortedFunc(maps.Values(f.minutes), func(a, b Minute) int { return a.At.Compare(b.At) }), nil
}

// ask asks Redis. After an error nothing is kept.
func (f *fleet) ask(ctx context.Context, limiter Limiter, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetWithin) // other clients get the answer too
	defer cancel()
	oldest := now.Add(-minutes.Day * time.Minute)
	since, kept := now.Add(-latelyChanged), f.minutes
	if f.err != nil || now.Sub(f.whole) >= wholeDayEvery {
		since, kept = oldest, nil
	}
	next := map[int64]Minute{}
	for minute, m := range kept {
		if m.At.After(oldest) {
			next[minute] = m
		}
	}
	f.minutes = nil
	err := limiter.EachMinute(ctx, since, func(at time.Time, gateways int, allowed, refused, shadow, delayed int64) {
		next[at.Unix()] = Minute{At: at, Allowed: allowed, Refused: refused, Delayed: delayed, Shadow: shadow, Gateways: gateways}
	})
	if err != nil {
		return err
	}
	f.minutes = next
	if kept == nil {
		f.whole = now
	}
	return nil
}

// answerFleet answers with the minutes of all gateways, or with those of this one.
func (l *Live) answerFleet(w http.ResponseWriter, r *http.Request) {
	list, err := l.fleet.read(r.Context(), l.options.Limiter)
	if err == nil {
		adminapi.Answer(w, Fleet{Available: true, Minutes: append([]Minute{}, list...)})
		return
	}
	adminapi.Answer(w, Fleet{Reason: err.Error(), Minutes: l.ownMinutes()})
}

// ownMinutes returns the minutes of this gateway, the oldest first.
func (l *Live) ownMinutes() []Minute {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []Minute{}
	l.history.byMinute.Each(l.history.now, func(at time.Time, c counts) {
		list = append(list, Minute{At: at, Allowed: c.Allowed, Refused: c.Refused, Delayed: c.Delayed, Shadow: c.ShadowRefused, Gateways: 1})
	})
	return list
}
