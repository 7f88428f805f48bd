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

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// decided is what a gateway has decided, by the minutes before now.
type decided struct {
	mu   sync.Mutex
	base int64 // the latest minute
	ago  map[int64]numbers
}

func newDecided(ago map[int64]numbers) *decided {
	return &decided{base: time.Now().Unix() / 60, ago: ago}
}

// minutes is Options.Minutes.
func (d *decided) minutes(_ time.Time, f func(Minute)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ago, n := range d.ago {
		f(Minute{At: minuteTime(d.base - ago), Allowed: n.allowed, Refused: n.refused, ShadowRefused: n.shadow, Delayed: n.delayed})
	}
}

func (d *decided) set(ago int64, n numbers) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ago[ago] = n
}

// sums returns what a Store reads, by the minutes before that of d.
func (d *decided) sums(t *testing.T, s *Store) map[int64]Minute {
	t.Helper()
	all := map[int64]Minute{}
	err := s.EachMinute(t.Context(), time.Time{}, func(m Minute) {
		ago := d.base - m.At.Unix()/60
		m.At = time.Time{}
		all[ago] = m
	})
	if err != nil && !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	return all
}

// want waits until a Store reads these minutes.
func (d *decided) want(t *testing.T, s *Store, want map[int64]Minute) {
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
	a := newDecided(map[int64]numbers{0: {10, 1, 0, 2}, 5: {7, 0, 3, 0}})
	b := newDecided(map[int64]numbers{5: {100, 0, 0, 0}})
	b.base = a.base // a minute may have begun
	first, second := a.reporting(t, o), b.reporting(t, o)
	idle := openBy(t, o)
	want := map[int64]Minute{
		0: {Allowed: 10, Refused: 1, Delayed: 2, Gateways: 1},
		5: {Allowed: 107, ShadowRefused: 3, Gateways: 2},
	}
	for _, s := range []*Store{first, second, idle} {
		a.want(t, s, want)
	}
	other := Options{URL: o.URL, Addresses: o.Addresses, Prefix: "other"}
	a.want(t, openBy(t, other), map[int64]Minute{})

	b.set(5, numbers{101, 1, 1, 1})
	b.set(0, numbers{refused: 9})
	second.Close()
	want[0] = Minute{Allowed: 10, Refused: 10, Delayed: 2, Gateways: 2}
	want[5] = Minute{Allowed: 108, Refused: 1, ShadowRefused: 4, Delayed: 1, Gateways: 2}
	if got := a.sums(t, first); !maps.Equal(got, want) {
		t.Errorf("after Close: %v, want %v", got, want)
	}
	if err := second.EachMinute(t.Context(), time.Time{}, func(Minute) {}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a closed Store: %v", err)
	}
}

// EachMinute reads the minutes since a moment.
func TestMinutesSince(t *testing.T) {
	t.Parallel()
	d := newDecided(map[int64]numbers{0: {allowed: 1}, 20: {allowed: 2}, 21: {allowed: 4}})
	s := d.reporting(t, Options{URL: redistest.Start(t).URL()})
	testproc.Eventually(t, func() bool { return len(d.sums(t, s)) == 3 })
	sum := int64(0)
	if err := s.EachMinute(t.Context(), minuteTime(d.base-20), func(m Minute) { sum += m.Allowed }); err != nil || sum != 3 {
		t.Errorf("%d since 20 minutes, %v, want 3", sum, err)
	}
}

// decidedFor returns a gateway that has decided for hours, and what others read of it.
func decidedFor(minutes int64) (*decided, map[int64]Minute) {
	d, want := newDecided(map[int64]numbers{}), map[int64]Minute{}
	for i := range minutes {
		d.ago[i] = numbers{allowed: i + 1, refused: 2 * i}
		want[i] = Minute{Allowed: i + 1, Refused: 2 * i, Gateways: 1}
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
		d.set(0, numbers{allowed: 1000 + 100*i})
		testproc.Eventually(t, func() bool { return d.sums(t, s)[0].Allowed == 1000+100*i })
		d.set(0, numbers{allowed: 1010 + 100*i})
		r.Kill()
		testproc.Eventually(t, func() bool { return !s.Up() })
		d.set(0, numbers{allowed: 1020 + 100*i})
		r.Restart()
		want[0] = Minute{Allowed: 1020 + 100*i, Gateways: 1}
		d.want(t, s, want)
	}
}

// A report that is repeated or arrives late changes nothing.
func TestMinutesNeverFall(t *testing.T) {
	t.Parallel()
	o := Options{URL: redistest.Start(t).URL(), Gateway: newGateway()}
	d := newDecided(map[int64]numbers{1: {allowed: 5, refused: 5}})
	s := d.reporting(t, o)
	want := map[int64]Minute{1: {Allowed: 5, Refused: 5, Gateways: 1}}
	d.want(t, s, want)
	late := newDecided(map[int64]numbers{1: {allowed: 4, refused: 6}})
	late.base = d.base
	for range 3 {
		late.reporting(t, o).Close() // which reports once more
	}
	want[1] = Minute{Allowed: 5, Refused: 6, Gateways: 1}
	d.want(t, s, want)
}

// A user of Redis who may not write hashes has global limits all the same. The error says why there are no minutes.
func TestMinutesWithoutRights(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	rights := strings.Fields(strings.ReplaceAll(strings.Join(leastRights, " "), "+hset", ""))
	r.Must(append([]string{"ACL", "SETUSER", "gateway", "on", ">secret"}, rights...)...)
	d := newDecided(map[int64]numbers{0: {allowed: 1}})
	s := d.reporting(t, Options{URL: r.URL(), Credentials: func() (string, string, error) { return "gateway", "secret", nil }})
	for range 3 {
		if n, err := s.gateway.announce(context.Background(), 0); err != nil || n.gateways != 1 {
			t.Fatal(n, err)
		}
	}
	err := s.EachMinute(t.Context(), time.Time{}, func(Minute) {})
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
	if next := s.gateway.reports.next(d.base); len(next.minutes) > 1 {
		t.Errorf("a heartbeat has %d minutes, and one is new", len(next.minutes))
	}
	for i := range 3000 {
		r.Must("HSET", "diana:minute:"+strconv.FormatInt(d.base-100, 10), fmt.Sprint("other", i), "1 1 1 1 1")
	}
	before := r.Calls()["hvals"]
	if got := d.sums(t, s)[100]; got.Gateways != 3001 || got.Allowed != 3101 {
		t.Errorf("%+v, want 3,001 gateways", got)
	}
	if n := r.Calls()["hvals"] - before; n > minutesOfDay+2 {
		t.Errorf("%d minutes were read", n)
	}
	t.Logf("a minute of 3,001 gateways takes %v bytes", r.Must("MEMORY", "USAGE", "diana:minute:"+strconv.FormatInt(d.base-100, 10), "SAMPLES", "0"))
	t.Logf("a minute of one gateway takes %v bytes", r.Must("MEMORY", "USAGE", "diana:minute:"+strconv.FormatInt(d.base-50, 10), "SAMPLES", "0"))
}
