// SPDX-License-Identifier: MIT

package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/plan"
)

// Text returns the report as text for people.
func (r *Report) Text() string {
	var b strings.Builder
	lines, others, broken := 0, 0, 0
	names := make([]string, len(r.Files))
	for i, f := range r.Files {
		names[i] = command.Legible(f.Name)
		lines, others, broken = lines+f.Lines, others+f.Others, broken+f.Broken
	}
	if len(names) > 3 {
		names = append(names[:2], fmt.Sprintf("%d files more", len(names)-2))
	}
	fmt.Fprintf(&b, "%s\n%s in %s, %s to %s UTC", strings.Join(names, ", "), Plural(r.Requests, "request"),
		Plural(int64(lines), "line"), moment(r.From), moment(r.To))
	if others > 0 {
		fmt.Fprintf(&b, "; no request in %s", Plural(int64(others), "line"))
	}
	if broken > 0 {
		fmt.Fprintf(&b, "; %s not readable", Plural(int64(broken), "line"))
	}
	b.WriteString("\n")
	resultText(&b, r, r.Config)
	if r.Against == nil {
		refusalsText(&b, r.Config)
	} else {
		resultText(&b, r, r.Against)
		differenceText(&b, r, r.OnlyConfig, r.Config, r.Against)
		differenceText(&b, r, r.OnlyAgainst, r.Against, r.Config)
	}
	timelineText(&b, r)
	notesText(&b, r)
	return b.String()
}

// resultText writes the decisions of a configuration, and of each rule.
func resultText(b *strings.Builder, r *Report, result *Result) {
	fmt.Fprintf(b, "\n%s refuses %d (%s)", command.Legible(result.Source), result.Refused, share(result.Refused, r.Requests))
	fmt.Fprintf(b, ", delays %d (%s)", result.Delayed, share(result.Delayed, r.Requests))
	if result.NoRule > 0 {
		fmt.Fprintf(b, ", has no rule for %d (%s)", result.NoRule, share(result.NoRule, r.Requests))
	}
	b.WriteString(".\n\n")
	table := [][]string{{"", "RULE", "URL", "ALGO", "SCOPE", "MODE", "ALLOWED", "DELAYED", "REFUSED", "SHARE"}}
	for i, of := range result.Rules {
		refused := of.Refused + of.ShadowRefused
		table = append(table, []string{
			strconv.Itoa(i + 1), command.Legible(of.Name), command.Legible(of.URL), of.Algorithm, of.Scope, of.Mode,
			number(of.Allowed), number(of.Delayed), number(refused), share(refused, r.Requests),
		})
	}
	b.WriteString(command.Columns(table, 6, 9))
	for i, of := range result.Rules {
		if l := of.Learned; l != nil {
			latency := "; too few requests tell the latency without a queue"
			if of.Baseline > 0 {
				latency = fmt.Sprintf(", by a latency of %v without a queue", time.Duration(of.Baseline*float64(time.Second)))
			}
			fmt.Fprintf(b, "\nRule %d would have had limits of %d to %d, the last %d%s.\n", i+1, l.Least, l.Most, of.Limit, latency)
		}
	}
	if m := result.Model; m != nil {
		fmt.Fprintf(b, "\nThe upstream is a model: %s behind one queue. %s of the requests were answered sooner than it allows", Plural(int64(m.Servers), "server"), percent(m.Early))
		if m.Busy > 0 {
			fmt.Fprintf(b, ", and\nthose that came while all were busy were served %.2f times as long. It fits if these are near 0 %% and 1.\n", m.Busy)
		} else {
			b.WriteString("; it fits if\nthat is near 0 %. Too few came while all were busy, or while one was free, to say more.\n")
		}
	}
}

// refusalsText writes which actors each rule refuses.
func refusalsText(b *strings.Builder, result *Result) {
	for i, of := range result.Rules {
		if of.First == nil {
			continue
		}
		verb := "refuses"
		if of.ShadowRefused > 0 {
			verb = "would refuse"
		}
		actorsText(b, fmt.Sprintf("Rule %d %s", i+1, verb), of.Refused+of.ShadowRefused, of.Refusals)
	}
}

// actorsText writes which actors a rule refuses in n requests: the first, and those refused most.
func actorsText(b *strings.Builder, refusing string, n int64, r Refusals) {
	count := fmt.Sprint(r.Actors)
	if r.Approximate {
		count = "over " + count
	}
	fmt.Fprintf(b, "\n%s %s of %s, first %s %s by %s at %s (%s:%d)\n", refusing, Plural(n, "request"), pluralText(r.Actors, count, "actor"),
		command.Legible(r.First.Method), command.Legible(r.First.Target), plan.ActorText(r.First.Actor), moment(r.First.Time), command.Legible(r.First.File), r.First.Line)
	if r.Actors == 1 && !r.Approximate {
		return
	}
	var table [][]string
	for _, a := range r.Most {
		row := []string{" ", number(a.Refused), share(a.Refused, n), plan.ActorText(a.Actor)}
		if a.Over > 0 {
			row[3] += fmt.Sprintf(" (or up to %d fewer)", a.Over)
		}
		table = append(table, row)
	}
	b.WriteString(command.Columns(table, 1, 2))
}

// differenceText writes which requests only one of two configurations refuses.
func differenceText(b *strings.Builder, r *Report, d *Difference, by, notBy *Result) {
	fmt.Fprintf(b, "\nOnly %s refuses %s (%s) that %s allows.\n", command.Legible(by.Source), Plural(d.Requests, "request"),
		share(d.Requests, r.Requests), command.Legible(notBy.Source))
	for _, of := range d.Rules {
		actorsText(b, fmt.Sprintf("%s: %s refuses", command.Legible(by.Source), strconv.Quote(of.Name)), of.Refused, of.Refusals)
	}
}

// mostColumns is how many rules have their own column in a timeline.
const mostColumns = 6

// timelineText writes the decisions over time.
func timelineText(b *strings.Builder, r *Report) {
	width := time.Duration(r.Config.Timeline.Seconds) * time.Second
	fmt.Fprintf(b, "\nIn each %s, UTC:\n\n", spanText(width))
	head := []string{"FROM", "REQUESTS", "REFUSED", "DELAYED"}
	var rules []int // with a column
	if r.Against != nil {
		head = []string{"FROM", "REQUESTS", "REFUSED", "DELAYED", "REFUSED BY OTHER", "DELAYED BY OTHER"}
	} else {
		rules = mostRefusing(r.Config.Rules)
		for _, i := range rules {
			head = append(head, fmt.Sprintf("BY %d", i+1))
		}
	}
	table := [][]string{head}
	for i, s := range r.Config.Timeline.Spans {
		if s.Requests == 0 { // one line stands for several empty spans
			if r.Config.Timeline.Spans[i-1].Requests > 0 {
				table = append(table, []string{"..."})
			}
			continue
		}
		row := []string{moment(s.Begin), number(s.Requests), number(s.Refused), number(s.Delayed)}
		if r.Against != nil {
			other := r.Against.Timeline.Spans[i]
			row = append(row, number(other.Refused), number(other.Delayed))
		}
		for _, i := range rules {
			row = append(row, number(s.ByRule[r.Config.Rules[i].Name]))
		}
		table = append(table, row)
	}
	b.WriteString(command.Columns(table, 1, len(head)-1))
}

// mostRefusing returns the indexes of the rules that refuse most, in the order of the rules.
func mostRefusing(rules []Rule) (which []int) {
	refused := func(i int) int64 { return rules[i].Refused + rules[i].ShadowRefused }
	for i := range rules {
		if refused(i) > 0 {
			which = append(which, i)
		}
	}
	slices.SortStableFunc(which, func(i, j int) int { return int(min(max(refused(j)-refused(i), -1), 1)) })
	which = which[:min(len(which), mostColumns)]
	slices.Sort(which)
	return which
}

// notesText writes the notes.
func notesText(b *strings.Builder, r *Report) {
	notes := slices.Clone(r.Config.Notes)
	if r.Against != nil {
		for _, n := range r.Against.Notes {
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	notes = append(notes, r.Notes...)
	if len(notes) == 0 {
		return
	}
	b.WriteString("\nNotes:\n\n")
	for _, n := range notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// Plural returns a count of things.
func Plural(n int64, what string) string { return pluralText(int(n), number(n), what) }

func pluralText(n int, text, what string) string {
	if n == 1 {
		return text + " " + what
	}
	return text + " " + what + "s"
}

// share returns a part of a whole in percent.
func share(n, of int64) string { return percent(float64(n) / float64(of)) }

func percent(part float64) string {
	switch part *= 100; {
	case part == 0:
		return "0 %"
	case part < 0.01:
		return "< 0.01 %"
	case part < 10:
		return fmt.Sprintf("%.2f %%", part)
	}
	return fmt.Sprintf("%.1f %%", part)
}

func moment(t time.Time) string {
	if t.Nanosecond() != 0 {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05")
}

// spanText returns the length of a span of the timeline.
func spanText(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := int64(d / u.length); {
		case n == 1:
			return u.name
		case n > 1:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}
