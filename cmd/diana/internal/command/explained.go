// SPDX-License-Identifier: MIT

package command

import (
	"fmt"
	"strconv"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Explained is a rule that evaluates a request, as diana explain prints it.
type Explained struct {
	URL   string `json:"url"`
	Rule  string `json:"rule"` // its name
	Algo  string `json:"algo"`
	Limit string `json:"limit"`
	Scope string `json:"scope"`
	Mode  string `json:"mode"`
	Key   string `json:"key"` // of the actor
}

// ExplainedBy returns the texts of an explanation.
func ExplainedBy(e diana.Explanation) Explained {
	r, l := e.Rule, limitText(e)
	if e.By != (rule.Who{}) {
		l += " for " + Legible(e.By.String()) + untilText(e.Until)
	}
	if e.Class != "" {
		l += " for class " + Legible(e.Class)
	}
	return Explained{e.URL.String(), r.Name, r.Algorithm.Name(), l, r.Scope.String(), r.Mode(), plan.ActorText(e.Key)}
}

// ExceptedBy says that a rule skips a request, and why.
func ExceptedBy(e diana.Explanation) string {
	return Legible(e.Rule.Name) + " excepts " + Legible(e.By.String()) + untilText(e.Until) + "."
}

// untilText says when an override ends. The zero time is never.
func untilText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.Format(time.RFC3339)
}

// limitText says what a rule allows, and the cost of the request if that is not 1.
func limitText(e diana.Explanation) string {
	r := e.Rule
	text := strconv.FormatInt(r.Limit.N, 10)
	if r.Algorithm.Held {
		text += " at once"
	} else {
		text += "/" + names.UnitOf(r.Limit)
	}
	if r.Limit.Zone != "" {
		text += " in " + Legible(r.Limit.Zone)
	}
	if r.Wait > 0 {
		text += ", wait " + r.Wait.String()
	}
	if e.Cost != 1 || r.Cost.Header != "" || r.Cost.Reserve != "" || r.Cost.Reservation != nil {
		text += fmt.Sprintf(", costs %d", e.Cost)
	}
	if len(r.Charge) > 0 {
		text += fmt.Sprintf(", charged for %v", r.Charge)
	}
	return text
}
