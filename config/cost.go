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
	"github.com/diana-limiter/diana/internal/jsonscan"
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
	c.IncludeUsage = m.get("include_usage").truth()
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
	if c.IncludeUsage && text != openAI {
		m.failKey("include_usage", "include_usage has no meaning for answer %s; it is for %s", text, openAI)
	}
	if w := m.get("weights"); w.given() {
		if !source.HasParts() {
			m.failKey("weights", "weights have no meaning for answer %s; they are for openai, anthropic and gemini", text)
		}
		readWeights(w, &c)
	}
	return c
}

// openAI is the answer of whose requests include_usage changes the body.
const openAI = "openai"

// readReserve reads what is reserved: a number, or its place in the body of the request.
func readReserve(m mapping, c *rule.Cost) {
	v := m.get("reserve")
	if v.given() && v.scalar() && !strings.HasPrefix(v.node.Value, ofBody) || !v.given() {
		v.form = reserveForm.wholeForm
		if v.given() && strings.ContainsFunc(v.node.Value, func(r rune) bool { return r == '/' || r == ':' }) {
			v.expected("1 to " + strconv.FormatInt(bounds.MaxN, 10) + ", or body: and a JSON pointer such as body:/max_tokens")
			return
		}
		c.N = v.whole()
		if m.get("or").given() {
			m.failKey("or", "or has no meaning for a reserve that is a number; it is for body:/POINTER")
		}
		return
	}
	c.N = m.get("or").whole()
	text, ok := v.text()
	if !ok {
		return
	}
	if err := checkPointer(strings.TrimPrefix(text, ofBody)); err != nil {
		v.fail("reserve: %v, found %s", err, v.found())
		return
	}
	c.Reserve = text
}

// ofBody is in front of a JSON pointer to a value in the body of a request.
const ofBody = "body:"

// checkPointer returns an error unless a text is a JSON pointer to a part of a document.
func checkPointer(text string) error {
	if !strings.HasPrefix(text, "/") {
		return errors.New("expected a JSON pointer such as body:/model")
	}
	return jsonscan.CheckPointer(text)
}

// readWeights reads what tokens cost. A kind of token without a weight costs 1.
func readWeights(v value, c *rule.Cost) {
	before := v.r.mistakes
	m := v.mapping()
	c.Input, c.Output, c.Cached = m.get("input").number(), m.get("output").number(), m.get("cached").number()
	if c.Input == 0 && c.Output == 0 && c.Cached == 0 && v.r.mistakes == before {
		v.fail("weights: expected one of input, output and cached above 0, found none")
	}
}

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
	for _, w := range []float64{c.Input, c.Output, c.Cached} {
		if !(w >= 0 && w <= mostWeight) {
			return fmt.Errorf("cost: a weight is %v, expected 0 to %d", w, mostWeight)
		}
		if w != 0 && !source.HasParts() {
			return fmt.Errorf("cost: weights have no meaning for answer %s", c.Answer)
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
	if c.Header != "" {
		return fmt.Errorf("cost has a Header and an Answer, expected one of them")
	}
	if !r.Algorithm.Uses("charge") {
		return fmt.Errorf("cost has an Answer, which algo %s cannot settle", r.Algorithm.Name())
	}
	return nil
}
