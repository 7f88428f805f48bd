// SPDX-License-Identifier: MIT

// Package replay reads and runs scripts that define how limits behave: at which moment which
// request arrives, and whether it is allowed.
//
//	# Source 003: at most 1 a second and 5 a minute, together.
//	limit second  algo=SL rpu=1
//	limit minute  algo=SL rpu=5 unit=minute
//
//	# time  action            result
//	0s      take 1            allowed            remaining=0,4
//	0s      take 1            refused by second  remaining=0,4  retry=1s
//	0s      take 1 for alice  allowed            # someone else
//	0s      give 1 at 0s                         # charged to none after all
//	0.5s    take 1            allowed
//
// The same script tests the arithmetic alone ([Meters]) and every other store. A script can also
// define how the rules of a configuration decide requests:
//
//	config diana.yaml
//
//	# time  request                                  result
//	0s      POST /login ip=203.0.113.7               allowed  remaining=99,0
//	1s      POST /login ip=203.0.113.7               refused by "logins of an address"  retry=59s
//	1s      GET /a?b=c header:X-Device-Id="phone 7"  allowed
//
// # Format
//
// A line is a list of words with spaces between them. A word that begins with # starts a comment
// until the end of the line. Double quotes keep a value with spaces together, as in
// algo="token bucket".
//
// A case is limits or a configuration, and the rows of what happens under them.
//
// A limit line names a limit and has the keys and values of a rule in a configuration: algo, rpu,
// unit, zone, burst, queue, slices, align, warmup, min. Only rpu is required. Adjacent limit lines are one
// decision: a request that one of them refuses is charged to none. A limit line below a row
// starts a new case with new limits that were never used.
//
// A config line names a configuration, and always starts a new case.
//
// A row is a time, an action, and the expected result:
//
//	TIME take N [for ACTOR] allowed [remaining=N,...] [wait=D]
//	TIME take N [for ACTOR] refused [by LIMIT,...] [remaining=N,...] [retry=D]
//	TIME give N at TIME [for ACTOR] [latency=D]
//
// and, under a configuration,
//
//	TIME METHOD URL [WHO=VALUE]... [lasts=D] [latency=D] [answer=N] [costs=N] allowed [remaining=N,...] [wait=D]
//	TIME METHOD URL [WHO=VALUE]... [lasts=D] [latency=D] [answer=N] [costs=N] refused [by RULE,...] [remaining=N,...] [retry=D] [status=N]
//
// TIME is an offset from [Start] such as 1m30s, or a date such as 2026-03-29T03:00:00+02:00 (RFC 3339), of
// up to 50 years before or after Start. Times may repeat, be negative, and go backwards as clocks do. N is the cost of the request. ACTOR is any word; rows without one
// are all of one actor.
//
// METHOD is in capital letters. URL is a path, optionally with a query, or a whole URL. WHO
// describes the client: ip is its address, by default 127.0.0.1; header:NAME and cookie:NAME are
// sent; any other, such as account, is an actor that is known without the request. lasts is how
// long the request runs after its wait, for rules of concurrency. latency is when its answer begins, for
// adaptive ones. If one of both is missing, it is the other. costs is what its answer turns out to
// cost when the request ends, for rules whose cost has an answer. For answer: duration it is what lasts says.
//
// Only what is written is compared, and exactly:
//
//   - by: the limits or rules that refuse, all of them.
//   - remaining: how many requests of cost 1 would still be allowed, for each limit in the order
//     of their lines, or each rule in the order of evaluation; - for one that is not compared.
//   - wait: how long the request is held before it proceeds.
//   - retry: the time after which the request would be allowed if no other one came; the longest
//     if several limits refuse. Under a configuration it is 0s if no wait helps.
//   - status: the status of the answer.
//
// give refunds the first take of that cost by that actor at that time, among those that are
// allowed and not refunded yet. Under adaptive concurrency, latency is how long that request took.
package replay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Start is the moment from which the times of a script count. Since the Unix epoch it is a
// multiple of a day, and of every unit that divides a day.
var Start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Script is a parsed file. Running it does not change it.
type Script struct {
	name  string
	cases []*scenario
}

// scenario is limits, or a configuration, and the rows under them.
type scenario struct {
	line   int    // its first line
	config string // "": limits
	limits []namedLimit
	rows   []row
}

type namedLimit struct {
	name  string
	line  int
	meter limit.Meter
	most  int64 // the largest cost of a request
}

type row struct {
	line     int
	at       int64 // since the Unix epoch
	n        int64
	actor    string
	takes    int   // give: the row whose charge it refunds; otherwise -1
	latency  int64 // give: of the request; notCompared: not known
	refunded bool
	want     result

	request Request // under a configuration
}

// result is the expected result of a take.
type result struct {
	text      string // as written, with single spaces
	allowed   bool
	by        []string // nil: not compared
	remaining []int64  // nil: not compared; notCompared: this one is not compared
	wait      int64    // retry, if not allowed; notCompared: not compared
	status    int      // 0: not compared
}

const notCompared = -1

// Run plays the script on a store that has not seen it before. It returns an error with a line for
// each row whose result differs, or nil.
//
// The store gets the script's moments. No request waits: the store gets a queue as an ordinary
// meter, and Run only compares the Wait of its outcomes.
//
// A case of a configuration is an error; see Play.
func (s *Script) Run(store limit.Store) error {
	return s.Play(store, func(string) (Gateway, error) {
		return nil, errors.New("a configuration cannot be played here")
	})
}

// Play is Run for scripts that name configurations. For each case of a configuration, open returns
// a Gateway that has decided nothing yet.
func (s *Script) Play(store limit.Store, open func(config string) (Gateway, error)) error {
	var errs []error
	for _, c := range s.cases {
		if c.config == "" {
			errs = append(errs, c.run(s.name, store))
			continue
		}
		gateway, err := open(c.config)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", s.name, c.line, err))
			continue
		}
		errs = append(errs, c.ask(s.name, gateway))
	}
	return errors.Join(errs...)
}

// Rows returns how many rows the script has.
func (s *Script) Rows() (n int) {
	for _, c := range s.cases {
		n += len(c.rows)
	}
	return n
}

func (c *scenario) run(file string, store limit.Store) error {
	var errs []error
	report := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %w", file, line, fmt.Errorf(format, args...)))
	}

	counters := make([]any, len(c.limits))
	for i, l := range c.limits {
		if _, ok := l.meter.(limit.Queue); ok {
			l.meter = withoutQueue(l.meter)
		}
		handle, err := store.Counters(fmt.Sprintf("%s:%d %s", file, l.line, l.name), l.meter)
		if err != nil {
			report(l.line, "%w", err)
			return errors.Join(errs...)
		}
		defer store.Retire(handle)
		counters[i] = handle
	}

	made := make([][]limit.Charge, len(c.rows))
	for i, r := range c.rows {
		if r.takes >= 0 {
			if r.latency != notCompared {
				for j := range made[r.takes] {
					if f := made[r.takes][j].Flight; f != nil {
						f.Measured, f.Latency, f.Ended = true, r.latency, r.at
					}
				}
			}
			store.Refund(made[r.takes])
			continue
		}
		charges := make([]limit.Charge, len(c.limits))
		for j := range charges {
			charges[j] = limit.Charge{Counters: counters[j], Key: []byte(r.actor), Cost: r.n}
			if _, ok := c.limits[j].meter.(limit.Adaptive); ok {
				charges[j].Flight = &limit.Flight{}
			}
		}
		allowed, err := store.Take(context.Background(), r.at, charges)
		if err != nil {
			report(r.line, "%w", err)
			continue
		}
		if allowed {
			made[i] = charges
		}
		if got := c.outcome(allowed, charges); !r.want.matches(got) {
			report(r.line, "expected %s, got %v", r.want.text, got)
		}
	}
	return errors.Join(errs...)
}

// withoutQueue returns the meter without its methods of a limit.Queue.
func withoutQueue(m limit.Meter) limit.Meter {
	if scripted, ok := m.(limit.Scripted); ok {
		return struct{ limit.Scripted }{scripted}
	}
	return struct{ limit.Meter }{m}
}

// outcome returns the result of a take.
func (c *scenario) outcome(allowed bool, charges []limit.Charge) result {
	got := result{allowed: allowed}
	for i, l := range c.limits {
		out := charges[i].Outcome
		got.remaining = append(got.remaining, out.Remaining)
		if !out.Allowed {
			got.by = append(got.by, l.name)
		}
		if out.Allowed == allowed {
			got.wait = max(got.wait, out.Wait)
		}
	}
	return got
}

func (want *result) matches(got result) bool {
	if want.allowed != got.allowed || want.wait != notCompared && want.wait != got.wait {
		return false
	}
	if want.by != nil && !sameNames(want.by, got.by) {
		return false
	}
	if want.status != 0 && want.status != got.status || want.remaining != nil && len(want.remaining) != len(got.remaining) {
		return false
	}
	for i, n := range want.remaining {
		if n != notCompared && n != got.remaining[i] {
			return false
		}
	}
	return true
}

// sameNames reports whether two lists without repetitions hold the same names.
func sameNames(a, b []string) bool {
	in := map[string]bool{}
	for _, name := range a {
		in[name] = true
	}
	for _, name := range b {
		if !in[name] {
			return false
		}
	}
	return len(a) == len(b)
}

// String returns the result as a script would say it.
func (r result) String() string {
	words := []string{"allowed"}
	if !r.allowed {
		words = []string{"refused", "by", spaced(strings.Join(r.by, ","))}
	}
	numbers := make([]string, len(r.remaining))
	for i, n := range r.remaining {
		numbers[i] = strconv.FormatInt(n, 10)
	}
	if len(numbers) > 0 {
		words = append(words, "remaining="+strings.Join(numbers, ","))
	}
	key := "wait="
	if !r.allowed {
		key = "retry="
	}
	words = append(words, key+(time.Duration(r.wait)*time.Microsecond).String())
	if r.status != 0 {
		words = append(words, "status="+strconv.Itoa(r.status))
	}
	return strings.Join(words, " ")
}

// spaced returns text as one word of a script.
func spaced(text string) string {
	if strings.ContainsAny(text, " \t#") {
		return `"` + text + `"`
	}
	return text
}
