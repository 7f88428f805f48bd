// SPDX-License-Identifier: MIT

package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

// Parse reads a script. Errors name it name. It may use the given algorithms, at least one, of
// which the first is the default. The error has a line name:LINE:COLUMN: message for each mistake.
func Parse(name string, r io.Reader, algorithms []limit.Algorithm) (*Script, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &parser{script: &Script{name: name}, algorithms: algorithms}
	number := 0
	for text := range strings.Lines(strings.TrimPrefix(string(text), "\uFEFF")) { // a byte order mark
		number++
		p.line(number, strings.TrimRight(text, "\r\n"))
	}
	if p.current == nil && len(p.mistakes) == 0 {
		p.mistakes = append(p.mistakes, fmt.Errorf("%s:%d:1: expected a limit or config line, found the end of the file", name, number+1))
	}
	if len(p.mistakes) > 0 {
		return nil, errors.Join(p.mistakes...)
	}
	return p.script, nil
}

type parser struct {
	script     *Script
	algorithms []limit.Algorithm
	current    *scenario // the last of the script
	mistakes   []error
}

// line is the line that the parser reads.
type line struct {
	*parser
	words
	number int
}

func (p *parser) line(number int, text string) {
	l := &line{parser: p, number: number, words: words{at: fmt.Sprintf("%s:%d", p.script.name, number), text: text}}
	defer func() { p.mistakes = append(p.mistakes, l.errs...) }()
	if l.split(); len(l.left) == 0 {
		return
	}
	switch w := l.left[0]; {
	case l.skip("limit"):
		l.limit()
	case l.skip("config"):
		l.config()
	case strings.IndexAny(w.text, "+-.0123456789") == 0:
		l.row()
	default:
		l.expected(`"limit", "config" or a time such as 1.5s`, w)
	}
}

func (l *line) limit() {
	named := namedLimit{line: l.number}
	w := l.next("a name for the limit")
	if named.name = w.text; strings.ContainsAny(w.text, "=,") {
		l.expected("a name for the limit", w)
	}
	if c := l.current; c == nil || len(c.rows) > 0 {
		l.begin()
	} else if c.config != "" {
		l.expected("a row of requests below the config line", word{column: 1, text: "limit"})
	}
	if slices.ContainsFunc(l.current.limits, func(o namedLimit) bool { return o.name == named.name }) {
		l.errorf(w, "two limits have the name %q", named.name)
	}
	named.meter, named.most = l.meter(w)
	l.current.limits = append(l.current.limits, named)
}

// config reads a config line.
func (l *line) config() {
	const what = "the name of a configuration"
	name := l.next(what)
	if name.text == "" && !l.lost {
		l.expected(what, name)
	}
	if len(l.left) > 0 {
		l.expected("the end of the line", l.left[0])
	}
	if c := l.current; c != nil && len(c.rows) == 0 && !l.lost {
		l.expected("a row", word{column: 1, text: "config"})
	}
	l.begin()
	l.current.config = name.text
}

// begin starts a case.
func (l *line) begin() {
	l.current = &scenario{line: l.number}
	l.script.cases = append(l.script.cases, l.current)
}

// meter reads the settings of the limit called name. It returns the largest cost of a request too.
func (l *line) meter(name word) (m limit.Meter, most int64) {
	before := len(l.errs)
	most = l.mostN()
	algorithm := l.algorithms[0]
	lim := limit.Limit{Unit: time.Second}
	given := map[string]word{}
	l.settings("algo, rpu, unit, zone, burst, queue, slices, align, warmup or min", func(key string, value word) bool {
		given[key] = value
		switch key {
		case "algo":
			algorithm = l.algorithm(value)
		case "rpu":
			lim.N = l.count(value, 0, most)
		case "unit":
			lim.Unit, lim.Calendar = l.unit(value)
		case "zone":
			lim.Zone = value.text
		case "burst":
			lim.Burst = l.count(value, 1, bounds.MaxN)
		case "queue":
			if lim.Queue = l.count(value, 0, bounds.MaxN); lim.Queue == 0 {
				lim.Queue = -1 // none; 0 would mean the default
			}
		case "slices":
			lim.Slices = l.count(value, bounds.MinSlices, bounds.MaxSlices)
		case "align":
			lim.AlignFirst = l.align(value)
		case "min":
			lim.Min = l.count(value, 1, bounds.MaxN)
		case "warmup":
			lim.Warmup = time.Duration(l.duration(value)) * time.Microsecond
		default:
			return false
		}
		return true
	})
	if _, ok := given["rpu"]; !ok {
		l.errorf(l.end, "expected rpu=NUMBER")
	}
	if len(l.errs) > before || l.lost {
		return nil, most
	}
	for _, key := range []string{"unit", "zone", "burst", "queue", "slices", "align", "warmup", "min"} {
		if value, ok := given[key]; ok && !algorithm.Uses(key) {
			l.errorf(word{column: value.column - len(key) - 1}, "%s means nothing to %s", key, algorithm.Name())
		}
	}
	meter, err := algorithm.New(lim)
	if err != nil {
		l.errorf(name, "%v", err)
	}
	return meter, most
}

// mostN returns the largest rpu of a limit line. Its algorithm may follow the rpu.
func (l *line) mostN() int64 {
	for _, w := range l.left {
		name, ok := strings.CutPrefix(w.text, "algo=")
		i := slices.IndexFunc(l.algorithms, func(a limit.Algorithm) bool { return ok && a.Called(name) })
		if i >= 0 {
			return cmp.Or(l.algorithms[i].MaxN, bounds.MaxN)
		}
	}
	return cmp.Or(l.algorithms[0].MaxN, bounds.MaxN)
}

func (l *line) algorithm(w word) limit.Algorithm {
	var names []string
	for _, a := range l.algorithms {
		if a.Called(w.text) {
			return a
		}
		names = append(names, a.Name())
	}
	l.errorf(w, "expected one of %s, found %v", strings.Join(names, ", "), w)
	return l.algorithms[0]
}

// unit reads a unit: a length of time, or a unit of the calendar.
func (l *line) unit(w word) (unit time.Duration, calendar string) {
	switch w.text {
	case "second":
		return time.Second, ""
	case "minute":
		return time.Minute, ""
	case "hour":
		return time.Hour, ""
	case "day":
		return 24 * time.Hour, ""
	case "week", "month", "year", "total":
		return 0, w.text
	}
	d, err := time.ParseDuration(w.text)
	if err != nil || d < bounds.MinUnit || d > bounds.MaxUnit || d%time.Microsecond != 0 {
		l.errorf(w, "expected second, minute, hour, day, week, month, year, total or a duration of %v to %.0fh, found %v", bounds.MinUnit, bounds.MaxUnit.Hours(), w)
	}
	return d, ""
}

// align reports whether windows begin at the first request.
func (l *line) align(w word) bool {
	switch w.text {
	case "clock":
		return false
	case "first":
		return true
	}
	l.errorf(w, "expected clock or first, found %v", w)
	return false
}

func (l *line) row() {
	if l.current == nil {
		l.current = &scenario{}
		l.errorf(l.left[0], "expected a limit or config line above the first row")
	}
	r := row{line: l.number, takes: -1, latency: notCompared, at: Start.UnixMicro() + l.time()}
	if l.current.config != "" {
		l.request(&r)
		l.current.rows = append(l.current.rows, r)
		return
	}
	switch w := l.next("take or give"); w.text {
	case "take":
		r.n = l.count(l.next("the cost of the request"), 1, l.mostCost())
		r.actor = l.actor()
		r.want = l.result()
	case "give":
		r.n = l.count(l.next("the cost of the request"), 1, l.mostCost())
		l.keyword("at")
		w := l.end
		if len(l.left) > 0 {
			w = l.left[0]
		}
		at := Start.UnixMicro() + l.time()
		r.actor = l.actor()
		if len(l.left) > 0 {
			if text, ok := strings.CutPrefix(l.left[0].text, "latency="); ok {
				r.latency = l.duration(word{column: l.left[0].column + len("latency="), text: text})
				l.next("")
			}
		}
		if len(l.left) > 0 {
			l.expected("the end of the line", l.left[0])
		}
		r.takes = l.take(w, at, r)
	default:
		l.expected("take or give", w)
	}
	l.current.rows = append(l.current.rows, r)
}

// mostCost returns the largest cost of a request, which all limits of the case can count.
func (l *line) mostCost() int64 {
	most := int64(bounds.MaxWindowN)
	for _, named := range l.current.limits {
		most = min(most, named.most)
	}
	return most
}

// take returns the row whose charge r refunds.
func (l *line) take(w word, at int64, r row) int {
	for i := range l.current.rows {
		t := &l.current.rows[i]
		if t.takes < 0 && t.want.allowed && !t.refunded && t.at == at && t.n == r.n && t.actor == r.actor {
			t.refunded = true
			return i
		}
	}
	l.errorf(w, "no take %d at that time is left to refund", r.n)
	return 0
}

func (l *line) actor() string {
	if !l.skip("for") {
		return ""
	}
	return l.next("an actor").text
}

func (l *line) result() result {
	want := result{wait: notCompared}
	w := l.next("allowed or refused")
	if !l.lost {
		want.text = strings.Join(strings.Fields(l.text[w.column-1:]), " ")
	}
	delay, keys := "retry", "remaining or retry"
	status := l.current.config != "" && w.text == "refused"
	if status {
		keys = "remaining, retry or status"
	}
	switch want.allowed = w.text == "allowed"; {
	case want.allowed:
		delay, keys = "wait", "remaining or wait"
	case w.text != "refused":
		l.expected("allowed or refused", w)
	case l.skip("by"):
		want.by = l.limits(l.next("names of limits"))
	}
	l.settings(keys, func(key string, value word) bool {
		switch key {
		case "remaining":
			want.remaining = l.remaining(value)
		case delay:
			want.wait = l.duration(value)
		case "status":
			want.status = int(l.count(value, 100, 599))
			return status
		default:
			return false
		}
		return true
	})
	return want
}

// limits reads names that are separated by commas.
func (l *line) limits(w word) []string {
	var names []string
	for name := range strings.SplitSeq(w.text, ",") {
		known := l.current.config != "" || slices.ContainsFunc(l.current.limits, func(o namedLimit) bool { return o.name == name })
		if !known || slices.Contains(names, name) {
			l.expected("names of limits above, separated by commas, each once", w)
			break
		}
		names = append(names, name)
	}
	return names
}

func (l *line) remaining(w word) []int64 {
	var numbers []int64
	column := w.column
	for text := range strings.SplitSeq(w.text, ",") {
		n := int64(notCompared)
		if text != "-" {
			n = l.count(word{column: column, text: text}, 0, bounds.MaxWindowN)
		}
		numbers = append(numbers, n)
		column += len(text) + 1
	}
	if l.current.config == "" && len(numbers) != len(l.current.limits) {
		l.errorf(w, "expected a number for each limit, %d, found %d", len(l.current.limits), len(numbers))
		return nil
	}
	return numbers
}
