// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// summed is a minute of all gateways.
type summed struct {
	minutes.Counts
	gateways int
}

// decided is what a gateway has decided, by the minutes before now.
type decided struct {
	mu   sync.Mutex
	base int64 // the latest minute
	ago  map[int64]minutes.Counts
}

func newDecided(ago map[int64]minutes.Counts) *decided {
	return &decided{base: time.Now().Unix() / 60, ago: ago}
}

// minutes is Options.Minutes.
func (d *decided) minutes(_ time.Time, f func(at time.Time, allowed, refused, shadowRefused, delayed int64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ago, c := range d.ago {
		f(minuteTime(d.base-ago), c.Allowed, c.Refused, c.ShadowRefused, c.Delayed)
	}
}

func (d *decided) set(ago int64, n minutes.Counts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ago[ago] = n
}

// sums returns what a Store reads, by the minutes before that of d.
func (d *decided) sums(t *testing.T, s *Store) map[int64]summed {
	t.Helper()
	all := map[int64]summed{}
	err := s.EachMinute(t.Context(), time.Time{}, func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64) {
		all[d.base-at.Unix()/60] = summed{minutes.Counts{Allowed: allowed, Refused: refused, ShadowRefused: shadowRefused, Delayed: delayed}, gateways}
	})
	if err != nil && !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	return all
}

// want waits until a Store reads these minutes.
func (d *decided) want(t *testing.T, s *Store, want map[int64]summed) {
	t.Helper()
	if !testproc.Becomes(func() bool { return maps.Equal(d.sums(t, s), want) }) {
		t.Fatalf("%v, want %v", d.sums(t, s), want)
	}
}

// reporting returns a Store that reports the minutes of d.
func (d *decided) reporting(t *testing.T, o Options) *Store {
	t.Helper()
	o.Minutes = d.minutes
	return openBy(t, o)
}

// Each gateway reads the sums of all. A gateway that ends reports before, and what it has reported stays.
func TestMinutes(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		r := redistest.Start(t)
		testMinutes(t, Options{URL: r.URL()})
		for _, name := range r.Must("KEYS", "diana:minute:*").([]any) {
			if ttl := r.Must("PTTL", name.(string)).(int64); ttl < 24*3_600_000 || ttl > 25*3_600_000 {
				t.Errorf("%s lives for %d ms", name, ttl)
			}
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		testMinutes(t, Options{Addresses: redistest.StartCluster(t, 3).Addrs()})
	})
}

func testMinutes(t *testing.T, o Options) {
	a := newDecided(map[int64]minutes.Counts{0: {Allowed: 10, Refused: 1, Delayed: 2}, 5: {Allowed: 7, ShadowRefused: 3}})
	b := newDecided(map[int64]minutes.Counts{5: {Allowed: 100}})
	b.base = a.base // a minute may have begun
	first, second := a.reporting(t, o), b.reporting(t, o)
	idle := openBy(t, o)
	want := map[int64]summed{
		0: {minutes.Counts{Allowed: 10, Refused: 1, Delayed: 2}, 1},
		5: {minutes.Counts{Allowed: 107, ShadowRefused: 3}, 2},
	}
	for _, s := range []*Store{first, second, idle} {
		a.want(t, s, want)
	}
	other := Options{URL: o.URL, Addresses: o.Addresses, Prefix: "other"}
	a.want(t, openBy(t, other), map[int64]summed{})

	b.set(5, minutes.Counts{Allowed: 101, Refused: 1, ShadowRefused: 1, Delayed: 1})
	b.set(0, minutes.Counts{Refused: 9})
	second.Close()
	want[0] = summed{minutes.Counts{Allowed: 10, Refused: 10, Delayed: 2}, 2}
	want[5] = summed{minutes.Counts{Allowed: 108, Refused: 1, ShadowRefused: 4, Delayed: 1}, 2}
	if got := a.sums(t, first); !maps.Equal(got, want) {
		t.Errorf("after Close: %v, want %v", got, want)
	}
	if err := second.EachMinute(t.Context(), time.Time{}, func(time.Time, int, int64, int64, int64, int64) {}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a closed Store: %v", err)
	}
}

// EachMinute reads the minutes since a moment.
func TestMinutesSince(t *testing.T) {
	t.Parallel()
	d := newDecided(map[int64]minutes.Counts{0: {Allowed: 1}, 20: {Allowed: 2}, 21: {Allowed: 4}})
	s := d.reporting(t, Options{URL: redistest.Start(t).URL()})
	testproc.Eventually(t, func() bool { return len(d.sums(t, s)) == 3 })
	sum := int64(0)
	if err := s.EachMinute(t.Context(), minuteTime(d.base-20), func(_ time.Time, _ int, allowed, _, _, _ int64) { sum += allowed }); err != nil || sum != 3 {
		t.Errorf("%d since 20 minutes, %v, want 3", sum, err)
	}
}

// decidedFor returns a gateway that has decided for hours, and what others read of it.
func decidedFor(n int64) (*decided, map[int64]summed) {
	d, want := newDecided(map[int64]minutes.Counts{}), map[int64]summed{}
	for i := range n {
		d.ago[i] = minutes.Counts{Allowed: i + 1, Refused: 2 * i}
		want[i] = summed{minutes.Counts{Allowed: i + 1, Refused: 2 * i}, 1}
	}
	return d, want
}

// A Redis that has lost all, or only what it was sent last, gets all minutes of the day again.
func TestMinutesComeBack(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	d, want := decidedFor(200)
	s := d.reporting(t, Options{URL: r.URL()})
	d.want(t, s, want)

	r.Must("FLUSHALL")
	d.want(t, s, want)

	testproc.Eventually(t, func() bool { return !s.gateway.reports.pending() })
	latest := "diana:minute:" + strconv.FormatInt(s.gateway.reports.check, 10)
	r.Must("HSET", latest, fmt.Sprint(s.gateway.number), "1 0 0 0 1")
	r.Must("DEL", "diana:minute:"+strconv.FormatInt(d.base-3, 10))
	d.want(t, s, want)
}

// A Redis that is killed keeps what is in its file. The gateway sends the rest again, and what was decided
// meanwhile.
func TestMinutesOverACrash(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	d, want := decidedFor(70)
	s := d.reporting(t, Options{URL: r.URL()})
	for i := range int64(3) {
		d.set(0, minutes.Counts{Allowed: 1000 + 100*i})
		testproc.Eventually(t, func() bool { return d.sums(t, s)[0].Allowed == 1000+100*i })
		d.set(0, minutes.Counts{Allowed: 1010 + 100*i})
		r.Kill()
		testproc.Eventually(t, func() bool { return !s.Up() })
		d.set(0, minutes.Counts{Allowed: 1020 + 100*i})
		r.Restart()
		want[0] = summed{minutes.Counts{Allowed: 1020 + 100*i}, 1}
		d.want(t, s, want)
	}
}

// A gateway that ends reports all minutes before, although a heartbeat has only some of them.
func TestMinutesBeforeClose(t *testing.T) {
	t.Parallel()
	o := Options{URL: redistest.Start(t).URL()}
	reader := openBy(t, o)
	d, want := decidedFor(5 * mostReported)
	d.reporting(t, o).Close()
	if got := d.sums(t, reader); !maps.Equal(got, want) {
		t.Errorf("%d minutes, want %d", len(got), len(want))
	}
}

// A report that is repeated or arrives late changes nothing.
func TestMinutesNeverFall(t *testing.T) {
	t.Parallel()
	o := Options{URL: redistest.Start(t).URL(), Gateway: newGateway()}
	d := newDecided(map[int64]minutes.Counts{1: {Allowed: 5, Refused: 5}})
	s := d.reporting(t, o)
	want := map[int64]summed{1: {minutes.Counts{Allowed: 5, Refused: 5}, 1}}
	d.want(t, s, want)
	late := newDecided(map[int64]minutes.Counts{1: {Allowed: 4, Refused: 6}})
	late.base = d.base
	for range 3 {
		late.reporting(t, o).Close() // which reports once more
	}
	want[1] = summed{minutes.Counts{Allowed: 5, Refused: 6}, 1}
	d.want(t, s, want)
}

// A user of Redis who may not write hashes has global limits all the same. The error says why there are no minutes.
func TestMinutesWithoutRights(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	rights := strings.Fields(strings.ReplaceAll(strings.Join(leastRights, " "), "+hset", ""))
	r.Must(append([]string{"ACL", "SETUSER", "gateway", "on", ">secret"}, rights...)...)
	d := newDecided(map[int64]minutes.Counts{0: {Allowed: 1}})
	s := d.reporting(t, Options{URL: r.URL(), Credentials: func() (string, string, error) { return "gateway", "secret", nil }})
	for range 3 {
		if n, err := s.gateway.announce(context.Background(), 0); err != nil || n.gateways != 1 {
			t.Fatal(n, err)
		}
	}
	err := s.EachMinute(t.Context(), time.Time{}, func(time.Time, int, int64, int64, int64, int64) {})
	if err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "does not keep the minutes") || !s.Up() {
		t.Errorf("%v, up: %v", err, s.Up())
	}
}

// A heartbeat of a gateway with a long day is small, and the calls that read many gateways are too.
func TestMinutesAreSmall(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	d, want := decidedFor(10 * mostReported)
	s := d.reporting(t, Options{URL: r.URL()})
	d.want(t, s, want)
	testproc.Eventually(t, func() bool { return !s.gateway.reports.pending() })
	if next := s.gateway.reports.next(d.base); len(next.list) > 1 {
		t.Errorf("a heartbeat has %d minutes, and one is new", len(next.list))
	}
	for i := range 3000 {
		r.Must("HSET", "diana:minute:"+strconv.FormatInt(d.base-100, 10), fmt.Sprint("other", i), "1 1 1 1 1")
	}
	before := r.Calls()["hvals"]
	if got := d.sums(t, s)[100]; got.gateways != 3001 || got.Allowed != 3101 {
		t.Errorf("%+v, want 3,001 gateways", got)
	}
	if n := r.Calls()["hvals"] - before; n > minutes.Day+2 {
		t.Errorf("%d minutes were read", n)
	}
	t.Logf("a minute of 3,001 gateways takes %v bytes", r.Must("MEMORY", "USAGE", "diana:minute:"+strconv.FormatInt(d.base-100, 10), "SAMPLES", "0"))
	t.Logf("a minute of one gateway takes %v bytes", r.Must("MEMORY", "USAGE", "diana:minute:"+strconv.FormatInt(d.base-50, 10), "SAMPLES", "0"))
}
