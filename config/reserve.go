// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/jsonscan"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// ofBody is in front of a JSON pointer to a value in the body of a request.
const ofBody = "body:"

// allNames is the output of a reservation that counts all names of the format.
const allNames = "auto"

// inputs are how a reservation counts the tokens of a request, as a rule.Reservation has them.
var inputs = []string{"", "estimate", inBytes}

const inBytes = "bytes"

// checkPointer returns an error unless a text is a JSON pointer to a part of a document.
func checkPointer(text string) error {
	if !strings.HasPrefix(text, "/") {
		return errors.New("expected a JSON pointer such as body:/model")
	}
	return jsonscan.CheckPointer(text)
}

// readReserve reads what is reserved: a number, its place in the body of the request, or a mapping.
func readReserve(m mapping, c *rule.Cost) {
	v := m.get("reserve")
	if v.given() && v.node.Kind == yaml.MappingNode {
		if m.get("or").given() {
			m.failKey("or", "or has no meaning beside a reserve that is a mapping, which has a key or of its own")
		}
		v.form = reserveKeys
		c.N, c.Reservation = 1, readReservation(v)
		return
	}
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
	v.form = reserveForm.textForm
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

// readReservation reads a reservation by the whole body of a request.
func readReservation(v value) *rule.Reservation {
	m := v.mapping()
	r := &rule.Reservation{
		Or:     m.get("or").whole(),
		Set:    m.get("set").truth(),
		Input:  inputs[m.get("input").choice()],
		Expand: m.get("expand").whole(),
		Add:    m.get("add").whole(),
		Min:    m.get("min").whole(),
		Strict: m.get("bound").choice() == 1,
	}
	r.Output, r.Auto = readOutput(m.get("output"))
	if r.Set {
		if r.Most = r.Or; m.get("most").given() {
			r.Most = m.get("most").whole()
		}
	}
	without := func(key, other string, missing bool) {
		if m.get(key).given() && missing {
			m.failKey(key, "%s has no meaning without %s", key, other)
		}
	}
	without("most", "set: true", !r.Set)
	without("expand", "input: bytes", r.Input != inBytes)
	without("add", "input: bytes", r.Input != inBytes)
	if err := checkReservation(r); err != nil {
		v.fail("%v", err)
	}
	return r
}

// checkReservation returns an error if parts of a reservation do not fit together.
func checkReservation(r *rule.Reservation) error {
	switch {
	case !slices.Contains(inputs, r.Input):
		return fmt.Errorf("reserve: input is %q, expected none, estimate or bytes", r.Input)
	case r.Set && r.Most < r.Or:
		return fmt.Errorf("reserve: most is %d and or is %d, expected at least as much for most", r.Most, r.Or)
	case r.Set && !r.Auto && len(r.Output) == 0:
		return errors.New("reserve: set needs output, a JSON pointer or auto")
	case r.Strict && (!r.Set || r.Input != inBytes):
		return errors.New("reserve: bound: strict needs set: true and input: bytes")
	}
	return nil
}

// readOutput reads where a request names its most tokens of output.
func readOutput(v value) (pointers []string, auto bool) {
	if !v.given() {
		return nil, false
	}
	if v.is(allNames) {
		return nil, true
	}
	items := []value{v}
	if v.node.Kind == yaml.SequenceNode {
		v.form = outputList
		items = slices.Collect(v.list)
	}
	for _, item := range items {
		item.form = pointerForm
		text, ok := item.text()
		if !ok {
			continue
		}
		if err := checkPointer(text); err != nil {
			item.fail("output: expected auto or a JSON pointer such as /max_tokens, found %s", item.found())
			continue
		}
		if slices.Contains(pointers, text) {
			item.fail("output: expected each once, found %s again", item.found())
		}
		pointers = append(pointers, text)
	}
	return pointers, false
}

// readPrices reads what tokens cost: weights, or weights by the model. A kind of token without a weight costs 1.
func readPrices(v value, c *rule.Cost) {
	m := v.mapping()
	by := m.get("by")
	if !by.given() {
		for _, key := range []string{"models", "unknown"} {
			if m.get(key).given() {
				m.failKey(key, "%s has no meaning without by, such as by: body:/model", key)
			}
		}
		c.Weights = readWeights(m, 1)
		return
	}
	for _, key := range plainWeights.names() {
		if m.get(key).given() {
			m.failKey(key, "%s has no meaning beside by, expected it in models", key)
		}
	}
	if m.get("above").given() {
		m.failKey("above", "above has no meaning beside by, expected it in models")
	}
	c.Weights = &rule.Weights{Models: map[string]rule.Weights{}, Dearest: m.get("unknown").choice() == 1}
	if text, ok := by.text(); ok {
		if err := checkPointer(strings.TrimPrefix(text, ofBody)); err != nil || !strings.HasPrefix(text, ofBody) {
			by.expected("body: and a JSON pointer such as body:/model")
		}
		c.Weights.By = text
	}
	models := m.get("models")
	if !models.given() {
		m.fail("weights: by needs models, a mapping of their names to weights")
		return
	}
	for name, item := range readMap(models, "names of models to weights", modelNameForm) {
		w := readWeights(value{r: v.r, key: "model", form: modelWeights, node: item}.mapping(), 0)
		c.Weights.Models[name] = *w
	}
	if models.node.Kind == yaml.MappingNode && models.len() == 0 {
		models.fail("models: expected names of models, found none")
	}
}

// readWeights reads what tokens cost. cached is the weight of cached tokens if it is not given; 0: that of the input.
func readWeights(m mapping, cached float64) *rule.Weights {
	before := m.r.mistakes
	w := &rule.Weights{
		Input: m.get("input").number(), Output: m.get("output").number(), Cached: cmp.Or(cached, m.get("input").number()),
		CacheWrite: m.get("cache_write").number(), CacheWrite1h: m.get("cache_write_1h").number(), Request: m.get("request").number(),
	}
	if m.get("cached").given() {
		w.Cached = m.get("cached").number()
	}
	if w.Input == 0 && w.Output == 0 && w.Cached == 0 && w.Request == 0 && m.r.mistakes == before {
		m.fail("weights: expected one of input, output, cached and request above 0, found none")
	}
	above := m.get("above")
	if !above.given() {
		return w
	}
	for digits, item := range readMap(above, "numbers of tokens to weights", tokensForm) {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue // tokensForm has said so
		}
		tier := value{r: m.r, key: "above", form: plainWeights, node: item}.mapping()
		inner := readWeights(tier, w.Cached)
		for key, weight := range map[string][2]*float64{ // what is left out stays as it is
			"input": {&inner.Input, &w.Input}, "output": {&inner.Output, &w.Output}, "request": {&inner.Request, &w.Request},
			"cache_write": {&inner.CacheWrite, &w.CacheWrite}, "cache_write_1h": {&inner.CacheWrite1h, &w.CacheWrite1h},
		} {
			if !tier.get(key).given() {
				*weight[0] = *weight[1]
			}
		}
		inner.Tokens = n
		w.Above = append(w.Above, *inner)
	}
	slices.SortFunc(w.Above, func(a, b rule.Weights) int { return cmp.Compare(a.Tokens, b.Tokens) })
	return w
}

// readMap yields the entries of a mapping with free keys.
func readMap(v value, of string, key textForm) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if v.node.Kind != yaml.MappingNode {
			v.expected("a mapping of " + of)
			return
		}
		seen := map[string]int{}
		for name, item := range v.pairs {
			switch text := name.Value; {
			case name.Tag == "!!merge":
				v.r.fail(name, noMerging)
			case name.Kind != yaml.ScalarNode || !key.accepts(text):
				v.r.fail(name, "%s: expected %s, found %s", v.key, of, yamltext.Quote(text))
			case seen[text] > 0:
				v.r.fail(name, "key %s is given twice, first in line %d", yamltext.Quote(text), seen[text])
			default:
				if seen[text] = name.Line; !yield(text, item) {
					return
				}
			}
		}
	}
}

// adviseReservation warns of a reservation that a client can keep too low.
func adviseReservation(m mapping, made *rule.Rule) {
	c := &made.Cost
	cost := m.get("cost")
	if c.Answer == "" || cost.node.Kind != yaml.MappingNode {
		return
	}
	cost.form = costKeys
	of := cost.mapping()
	node := of.node
	if of.get("reserve").given() {
		node = of.get("reserve").node
	}
	v := c.Reservation
	switch {
	case c.Reserve != "", v != nil && !v.Set && v.Min == 0 && (v.Auto || len(v.Output) > 0):
		m.r.warn(node, "reserve: a client chooses how little this reserves; a mapping with min, or with set: true, bounds it")
	}
	if v == nil && slices.ContainsFunc(weightsOf(c), func(w rule.Weights) bool {
		return max(w.Input, w.Output, w.Cached, w.CacheWrite, w.CacheWrite1h) > 1
	}) {
		m.r.warn(node, "reserve: it is not weighted, and weights are above 1, so requests in flight can exceed the limit; a mapping is weighted")
	}
}

// weightsOf returns all weights of a cost.
func weightsOf(c *rule.Cost) (all []rule.Weights) {
	switch {
	case c.Weights == nil:
	case c.Weights.By == "":
		all = append(all, *c.Weights)
	default:
		all = slices.Collect(maps.Values(c.Weights.Models))
	}
	for _, w := range all {
		all = append(all, w.Above...)
	}
	return all
}

// adviseTogether warns of rules of an entry that reserve 1 while nothing bounds how many requests are in flight, and
// names those that do not charge failures.
func (r *reader) adviseTogether(places [][2]int, rules []rule.Rule) {
	held := slices.ContainsFunc(rules, func(of rule.Rule) bool { return of.Algorithm.Held })
	for i := range rules {
		c := &rules[i].Cost
		if c.Answer == "" {
			continue
		}
		warn := func(format string, args ...any) { r.warnings.Add(r.place(places[i][0], places[i][1], format, args...)) }
		if c.Reservation == nil && c.Reserve == "" && c.N <= 1 && !held {
			warn("cost: it reserves 1, so requests in flight can exceed the limit; expected a reserve, or a rule with algo C beside it")
		}
		if source, err := answer.ParseSource(c.Answer); err == nil && source.InBody() && len(rules[i].Charge) == 0 && !rules[i].ChargeAll {
			warn("charge: it is not set, so a failed response that names no usage costs nothing; charge: all charges its reservation")
		}
	}
}
