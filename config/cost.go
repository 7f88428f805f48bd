// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// mostCost returns the largest cost of a request that a rule of an algorithm can set.
func mostCost(a limit.Algorithm) int64 { return cmp.Or(a.MaxN, bounds.MaxCost) }

// readCost reads the cost of a request under a rule, a number of at most most.
func readCost(v value, most int64) rule.Cost {
	if !v.given() {
		return rule.Cost{N: 1}
	}
	if v.node.Kind == yaml.MappingNode {
		return readAnswer(v)
	}
	text := v.node.Value
	if v.scalar() && len(text) <= longestActor && text[:min(len(text), 1)] != "0" && (!v.quoted() || strings.Contains(text, ":")) {
		if n, ok := httptext.Whole(text); ok && 1 <= n && n <= most {
			return rule.Cost{N: n}
		}
		var c rule.Cost
		if c.UnmarshalText([]byte(text)) == nil {
			return c
		}
	}
	v.expected("1 to " + strconv.FormatInt(most, 10) + ", header:NAME, client:NAME or a mapping with answer")
	return rule.Cost{N: 1}
}

// readAnswer reads a cost that is known when the response is.
func readAnswer(v value) rule.Cost {
	v.form = costKeys
	m := v.mapping()
	var c rule.Cost
	readReserve(m, &c)
	from := m.get("answer")
	text, ok := from.text()
	if !ok {
		return c
	}
	source, err := answer.ParseSource(text)
	if err != nil {
		from.fail("answer: %v, found %s", err, from.found())
		return c
	}
	c.Answer = text
	meaning := func(key, of string, has bool) {
		if m.get(key).given() && !has {
			m.failKey(key, "%s has no meaning for answer %s; it is for %s", key, text, of)
		}
	}
	if usage := m.get("include_usage"); usage.truth() && (usage.given() || text == openAI) {
		meaning("include_usage", openAI, text == openAI)
		c.IncludeUsage, c.AnyBody = true, !usage.given()
	}
	if meaning("scale", "a JSON pointer", source.IsPointer()); m.get("scale").given() {
		c.Scale = m.get("scale").whole()
	}
	meaning("after", yamltext.Join(answer.Formats, "and")+" and JSON pointers", source.InBody())
	if source.InBody() {
		c.After = m.get("after").duration()
	}
	if w := m.get("weights"); w.given() {
		if !source.HasParts() && (c.Reservation == nil || !source.IsPointer()) {
			m.failKey("weights", "weights have no meaning for answer %s; they are for %s", text, yamltext.Join(answer.Formats, "and"))
		}
		readPrices(w, &c)
	}
	if c.Reservation != nil && c.Reservation.Strict && c.Scale > 1 && c.Weights == nil {
		m.failKey("scale", "%v", errScale)
	}
	if c.Reservation != nil && !source.InBody() {
		m.failKey("reserve", "reserve: a mapping has no meaning for answer %s; it is for %s and JSON pointers", text, yamltext.Join(answer.Formats, "and"))
	}
	return c
}

// openAI is the answer of whose requests include_usage changes the body.
const openAI = "openai"

// checkAnswer returns an error if a cost with an Answer, which a program has made, is not valid.
func checkAnswer(r *rule.Rule) error {
	c := &r.Cost
	source, err := answer.ParseSource(c.Answer)
	if err != nil {
		return fmt.Errorf("cost: answer: %w", err)
	}
	if err := inRange("cost: reserve", max(c.N, 1), orForm); err != nil {
		return err
	}
	if err := checkPrices(c, source); err != nil {
		return fmt.Errorf("cost: %w", err)
	}
	if r := c.Reservation; r != nil {
		if c.Reserve != "" || !source.InBody() {
			return fmt.Errorf("cost has a Reservation beside a Reserve, or an Answer outside of the body")
		}
		if err := checkReservation(r); err != nil {
			return fmt.Errorf("cost: %w", err)
		}
	}
	if c.Reserve != "" {
		pointer, ok := strings.CutPrefix(c.Reserve, ofBody)
		if err := checkPointer(pointer); !ok || err != nil {
			return fmt.Errorf("cost: reserve is %q, expected body: and a JSON pointer", c.Reserve)
		}
	}
	if c.IncludeUsage && c.Answer != openAI {
		return fmt.Errorf("cost: include_usage has no meaning for answer %s", c.Answer)
	}
	if c.AnyBody && !c.IncludeUsage {
		return fmt.Errorf("cost has AnyBody without IncludeUsage, expected both")
	}
	if c.Header != "" {
		return fmt.Errorf("cost has a Header and an Answer, expected one of them")
	}
	if !r.Algorithm.Uses("charge") {
		return fmt.Errorf("cost has an Answer, which algo %s cannot settle", r.Algorithm.Name())
	}
	return nil
}

var errScale = errors.New("scale: bound: strict needs weights beside it, which say what a token reserves")

// checkPrices returns an error if the prices of a cost are not valid.
func checkPrices(c *rule.Cost, source answer.Source) error {
	if c.Reservation != nil && c.Reservation.Strict && c.Scale > 1 && c.Weights == nil {
		return errScale
	}
	if c.Weights != nil && !source.HasParts() && (c.Reservation == nil || !source.IsPointer()) {
		return fmt.Errorf("weights have no meaning for answer %s", c.Answer)
	}
	if c.Scale != 0 && (!source.IsPointer() || inRange("scale", c.Scale, scaleForm) != nil) {
		return fmt.Errorf("scale is %d, expected 1 to %d, beside a JSON pointer", c.Scale, scaleForm.most)
	}
	if c.After < 0 || c.After > afterForm.most {
		return fmt.Errorf("after is %v, expected 0 to %v", c.After, afterForm.most)
	}
	if c.Weights != nil && c.Weights.By != "" {
		pointer, ok := strings.CutPrefix(c.Weights.By, ofBody)
		if err := checkPointer(pointer); !ok || err != nil {
			return fmt.Errorf("weights: by is %q, expected body: and a JSON pointer", c.Weights.By)
		}
	}
	for _, w := range weightsOf(c) {
		for _, n := range []float64{w.Input, w.Output, w.Cached, w.CacheWrite, w.CacheWrite1h, w.Request} {
			if !(n >= 0 && n <= mostWeight) {
				return fmt.Errorf("a weight is %v, expected 0 to %d", n, mostWeight)
			}
		}
	}
	return nil
}
