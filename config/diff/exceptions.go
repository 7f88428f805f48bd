// SPDX-License-Identifier: MIT

package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/diana-limiter/diana/rule"
)

// A treatment is what a rule does for one of its exceptions.
type treatment struct {
	who treated
	how string
}

// treated is a client or a class.
type treated struct {
	rule.Who
	class bool
}

// treatments returns the treatments of a rule in the order of the configuration.
func treatments(r *rule.Rule) (list []treatment) {
	for _, w := range r.Except {
		list = append(list, treatment{treated{Who: w}, "excepted"})
	}
	for i, o := range slices.Concat(r.Overrides, r.Classes) {
		how := fmt.Sprint("rpu ", o.N)
		if o.Burst != 0 {
			how += ", burst " + orRPU(o.Burst)
		}
		if o.Queue != 0 {
			how += ", queue " + orRPU(o.Queue)
		}
		if o.Exempt {
			how = "exempt"
		}
		if !o.Until.IsZero() {
			how += ", until " + o.Until.Format(time.RFC3339)
		}
		list = append(list, treatment{treated{o.Who, i >= len(r.Overrides)}, how})
	}
	return list
}

// treatedSince returns the treatments that differ from those of was: the first ten, and the number of
// the others.
func treatedSince(r, was *rule.Rule) (changes []string) {
	list := treatments(r)
	current := len(list)
	list = append(list, treatments(was)...)
	if len(list) == 0 {
		return nil
	}
	old, now := map[treated]string{}, map[treated]string{}
	for i, t := range list {
		if i < current {
			now[t.who] = t.how
		} else {
			old[t.who] = t.how
		}
	}
	more := 0
	for _, t := range list {
		before, after := old[t.who], now[t.who]
		old[t.who] = after // so the second mention is no difference
		switch {
		case before == after:
		case len(changes) == maxChanges:
			more++
		default:
			changes = append(changes, fmt.Sprintf("for %s: %s → %s", masked(t.who), cmp.Or(before, "none"), cmp.Or(after, "none")))
		}
	}
	if more > 0 {
		changes = append(changes, fmt.Sprintf("and %d others", more))
	}
	return changes
}

// masked returns a client in a form that can be logged. A value can be a secret, such as an API key,
// so masked shows only the end of a long value. The name of a class is none.
func masked(w treated) string {
	const most, end = 10, 4
	text := w.String()
	if w.class {
		return "class " + legible(w.Value)
	}
	if w.Value != "" && utf8.RuneCountInString(text) > most {
		runes := []rune(text)
		text = "..." + string(runes[len(runes)-end:])
	}
	return legible(text)
}

// treats returns a text that is equal for two rules with equal treatments.
func treats(r *rule.Rule) string {
	var lines []string
	for _, t := range treatments(r) {
		lines = append(lines, fmt.Sprintf("%v %q %s", t.who.class, t.who.String(), t.how))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
