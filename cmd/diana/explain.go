// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/diana-limiter/diana/rule"
)

// explainCommand shows how a request would be judged.
type explainCommand struct {
	Config     string     `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration where there is none."`
	Method     string     `short:"X" default:"GET" placeholder:"METHOD" help:"Method of the request (${default})."`
	Headers    []string   `name:"header" short:"H" sep:"none" placeholder:"'NAME: VALUE'" help:"A header of the request. May be repeated."`
	RemoteAddr netip.Addr `default:"127.0.0.1" placeholder:"IP" help:"Address that the request comes from (${default})."`
	URL        string     `arg:"" name:"url" help:"URL of the request, or only its path."`
}

// Help is the end of what --help prints.
func (explainCommand) Help() string {
	return `The request is not sent, and counted nowhere.`
}

// Run prints the rules in the order in which they judge.
func (c *explainCommand) Run(o *output) error {
	if !c.RemoteAddr.IsValid() {
		return usagef("--remote-addr: expected an address, found an empty one")
	}
	request, err := c.request()
	if err != nil {
		return err
	}
	s := chosen(c.Config)
	loaded, err := s.load()
	if err != nil {
		return o.faults(s, err)
	}
	set, err := compile(loaded)
	if err != nil {
		return o.faults(s, err)
	}
	if loaded.Remote != nil {
		o.complainf("diana: the configuration centre of %s is not asked; these are the local limits\n", s)
	}
	what := request.Method + " " + request.URL.EscapedPath()
	judged := rule.Request{Method: request.Method, Path: request.URL.EscapedPath(), HTTP: request}
	explained, err := set.Explain(&judged)
	if strange := (*rule.PathError)(nil); errors.As(err, &strange) {
		o.printf("%s is answered with %d, because %v.\n", what, strange.Status(), strange)
		return nil
	}
	var judging, excepted []rule.Explanation
	for _, e := range explained {
		if e.Excepted {
			excepted = append(excepted, e)
		} else {
			judging = append(judging, e)
		}
	}
	if len(judging) == 0 {
		o.printf("%s is judged by no rule of %s.\n", what, s)
	} else {
		o.printf("%s is judged by %s of %s, in this order:\n\n", what, rules(len(judging)), s)
		o.printf("%s", table(judging))
	}
	for _, e := range set.ExplainBandwidths(&judged) {
		o.printf("%s\n", bandwidthText(e))
	}
	for i, e := range excepted {
		if i == 0 {
			o.printf("\n")
		}
		o.printf("%s excepts %s.\n", legible(e.Rule.Name), legible(e.By.String()))
	}
	for i, e := range judging {
		if e.Rule.Divert != nil && (i == 0 || judging[i-1].Rule.Divert != e.Rule.Divert) {
			o.printf("\nWhat a rule of %s refuses is diverted: %s.\n", legible(e.Rule.URL.String()), legible(e.Rule.Divert.String()))
		}
	}
	return nil
}

// bandwidthText says how the answer is slowed.
func bandwidthText(e rule.BandwidthExplanation) string {
	text := "The answer is slowed to a bandwidth of " + legible(e.Bandwidth.String()) + " (" + legible(e.Bandwidth.URL.String()) + ")"
	if e.Bandwidth.Shared() {
		text += ", shared under the key " + rule.ActorText(e.Key)
	}
	return text + "."
}

// table returns the rules and keys in columns.
func table(explained []rule.Explanation) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(columns ...string) { _, _ = io.WriteString(w, strings.Join(columns, "\t")+"\n") }
	row("", "URL", "RULE", "ALGO", "LIMIT", "SCOPE", "MODE", "KEY")
	for i, e := range explained {
		r := e.Rule
		l := limitText(e)
		if e.By != (rule.Who{}) {
			l += " for " + legible(e.By.String())
		}
		row(strconv.Itoa(i+1), legible(r.URL.String()), legible(r.Name), r.Algorithm.Name(), l,
			r.Scope.String(), r.Mode.String(), rule.ActorText(e.Key))
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// limitText says what a rule allows, and what the request takes of it if that is not the
// usual one.
func limitText(e rule.Explanation) string {
	r := e.Rule
	text := strconv.FormatInt(r.Limit.N, 10)
	if r.Algorithm.Held {
		text += " at once"
	} else {
		text += "/" + rule.UnitName(r.Limit.Unit)
	}
	if r.Wait > 0 {
		text += ", wait " + r.Wait.String()
	}
	if e.Cost != 1 || r.Cost.Header != "" {
		text += fmt.Sprintf(", costs %d", e.Cost)
	}
	if len(r.Charge) > 0 {
		text += fmt.Sprintf(", charged for %v", r.Charge)
	}
	return text
}

// legible returns text as it is, or quoted if it would spoil a line.
func legible(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text)
	}
	return text
}
