// SPDX-License-Identifier: MIT

package live

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"

	"github.com/diana-limiter/diana/internal/minutes"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at samples one rule at a number of seconds after noon.
func (h *history) sampleAt(seconds int, name string, c counts) {
	h.begin(noon.Add(time.Duration(seconds) * time.Second))
	h.count(name, c)
	h.end()
}

// Each second has what was decided since the sample before it, and the last one comes last.
func TestHistorySeconds(t *testing.T) {
	t.Parallel()
	var h history
	h.sampleAt(0, "r", counts{Allowed: 10, Refused: 1})
	h.sampleAt(1, "r", counts{Allowed: 30, Refused: 5, ShadowRefused: 2, Delayed: 1})
	h.sampleAt(4, "r", counts{Allowed: 40, Refused: 5, ShadowRefused: 2, Delayed: 1}) // two seconds without a sample
	total := h.totals()
	if got := total.Allowed[seconds-5:]; !slices.Equal(got, []int64{10, 20, 0, 0, 10}) {
		t.Errorf("allowed %v", got)
	}
	if got := total.Refused[seconds-5:]; !slices.Equal(got, []int64{1, 4, 0, 0, 0}) {
		t.Errorf("refused %v", got)
	}
	if got := h.perSecond(h.order[0].latest.Allowed); got != 3.3 {
		t.Errorf("%v a second, want 3.3: ten in three seconds", got)
	}
	h.sampleAt(4+seconds, "r", counts{Allowed: 41, Refused: 5, ShadowRefused: 2, Delayed: 1})
	if got := sum(h.totals().Allowed); got != 1 {
		t.Errorf("%d allowed within ten minutes, want 1", got)
	}
}

// A rule that is gone, comes back or starts from 0 again causes no negative count and no peak.
func TestHistoryOverReloads(t *testing.T) {
	t.Parallel()
	var h history
	h.sampleAt(0, "r", counts{Allowed: 1000})
	h.sampleAt(1, "other", counts{})
	h.sampleAt(2, "r", counts{Allowed: 1003}) // came back with its counts
	h.sampleAt(3, "r", counts{Allowed: 2})    // began again
	if got := h.totals().Allowed[seconds-4:]; !slices.Equal(got, []int64{1000, 0, 3, 2}) {
		t.Errorf("allowed %v", got)
	}
}

// The sum of all seconds is what was decided within ten minutes, by a slow model, also if samples are late or the clock
// is set back.
func TestHistoryAgainstModel(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h history
		type step struct{ second, n int64 }
		var steps []step
		total, second := int64(0), int64(0)
		for range 300 {
			second += []int64{1, 1, 1, 1, 2, 3, 30, 700}[r.IntN(8)]
			n := r.Int64N(5)
			total += n
			steps = append(steps, step{second, n})
			h.sampleAt(int(second), "r", counts{Refused: total})
			recent, tenSeconds := int64(0), int64(0)
			for _, s := range steps {
				if s.second > second-seconds {
					recent += s.n
				}
				if (noon.Unix()+s.second)/10 > (noon.Unix()+second)/10-tens {
					tenSeconds += s.n
				}
			}
			if got := sum(h.totals().Refused); got != recent {
				t.Fatalf("%d refused in the seconds, want %d", got, recent)
			}
			byTen := int64(0)
			for _, n := range h.byTen(h.order[0]) {
				byTen += int64(n)
			}
			if byTen != tenSeconds {
				t.Fatalf("%d refused in spans of ten seconds, want %d", byTen, tenSeconds)
			}
		}
		h.sampleAt(int(second)-100, "r", counts{Refused: total + 1}) // the clock is set back
		if got := h.totals().Refused[seconds-1]; got < 1 {
			t.Fatalf("%d refused in the latest second", got)
		}
	}
}

// A rule that has refused nothing for ten minutes has no history.
func TestHistoryForgetsRefusals(t *testing.T) {
	t.Parallel()
	var h history
	h.sampleAt(0, "r", counts{Refused: 5})
	h.sampleAt(100, "r", counts{Refused: 7})
	for i := range 700 {
		h.sampleAt(101+i, "r", counts{Refused: 7})
		if got := h.byTen(h.order[0]); i < 400 && got[tens-1-(101+i)/10] != 5 {
			t.Fatalf("second %d: %v", 101+i, got)
		}
	}
	if h.order[0].refusedByTen.slots != nil {
		t.Error("there is a history of refusals ten minutes after the last one")
	}
}

// A clock that is set back loses no decision, unless it is set back by far.
func TestHistoryWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	var h history
	h.sampleAt(0, "r", counts{Allowed: 100})
	h.sampleAt(5, "r", counts{Allowed: 1000})
	h.sampleAt(4, "r", counts{Allowed: 1100})
	h.sampleAt(6, "r", counts{Allowed: 1101})
	if got := sum(h.totals().Allowed); got != 1101 {
		t.Errorf("%d in the seconds, want 1,101", got)
	}
	h.byMinute.Each(h.now, func(_ time.Time, c minutes.Counts) {
		if c.Allowed != 1101 {
			t.Errorf("%+v, want 1,101 in one minute", c)
		}
	})
	h.sampleAt(-3600, "r", counts{Allowed: 1111})
	if got := sum(h.totals().Allowed); got != 10 {
		t.Errorf("%d an hour before, want 10", got)
	}
}

// Rules that are gone are forgotten.
func TestHistoryForgetsRules(t *testing.T) {
	t.Parallel()
	var h history
	for i := range 5000 {
		h.sampleAt(i, "r"+strconv.Itoa(i), counts{Allowed: 1})
	}
	if len(h.rules) > 1100 {
		t.Errorf("%d rules are remembered, and there is one", len(h.rules))
	}
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}
