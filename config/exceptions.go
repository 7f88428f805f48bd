// SPDX-License-Identifier: MIT

package config

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// longestWho is the length of "=" and the longest value that keys hold unhashed.
const longestWho = 257

// longestMoment is the length of a moment with nanoseconds.
const longestMoment = 35

// An override is one of overrides, or of classes.
type override struct {
	mapping
	who  rule.Who
	says limit.Limit // the keys that are given

	exempt bool
	until  time.Time
}

var variantKeys = []string{"except", "overrides", "class", "classes"}

// readVariants reads except, overrides, class and classes of a rule. The rule is complete but for these, unless keep
// is false: it has a mistake, so there is nothing to keep.
func readVariants(m mapping, made *rule.Rule, keep bool) {
	if !slices.ContainsFunc(variantKeys, func(key string) bool { return m.get(key).given() }) { // most rules
		return
	}
	x := &variants{rule: made, keep: keep}
	x.readExceptions(m)
	x.readClasses(m)
}

// variants are read one after another, because a rule can have hundreds of thousands.
type variants struct {
	rule *rule.Rule
	keep bool
	good limit.Limit // the last one that the algorithm can keep
}

// readExceptions reads except and overrides. To name a client twice is an error.
func (x *variants) readExceptions(m mapping) {
	except, overrides := m.get("except"), m.get("overrides")
	if !except.given() && !overrides.given() {
		return
	}
	seen := map[string]int32{}
	if x.keep {
		x.rule.Except = slices.Grow(x.rule.Except, except.len())
	}
	for item := range except.list {
		if w, ok := readWho(item, x.rule.Actor, seen); ok && x.keep {
			x.rule.Except = append(x.rule.Except, w)
			if w.Network.IsValid() && w.Network.Bits() == 0 {
				m.r.warn(item.node, "except: this is every address of its kind, so the rule judges no one who has one")
			}
		}
	}
	x.rule.Overrides = x.read(overrides, "values, addresses or networks", "override", overrideKeys, func(v value) (rule.Who, bool) {
		v.form = whoForm
		return readWho(v, x.rule.Actor, seen)
	})
}

// read reads a mapping to other limits. of says what its keys are, and called what its values are called, with
// which keys. key reads a key.
func (x *variants) read(v value, of, called string, form keys, key func(value) (rule.Who, bool)) (list []rule.Override) {
	if !v.given() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		v.expected("a mapping of " + of + " to other limits")
		return nil
	}
	if x.keep {
		list = make([]rule.Override, 0, v.len())
	}
	for name, item := range v.pairs {
		if name.Tag == "!!merge" {
			v.r.fail(name, noMerging)
			continue
		}
		before := len(v.r.fields)
		w, ok := key(value{r: v.r, key: v.key, node: name})
		o := override{mapping: value{r: v.r, key: called, form: form, node: item}.mapping(), who: w}
		o.says = limit.Limit{N: readN(o.get("rpu"), x.rule.Algorithm), Burst: o.get("burst").whole(), Queue: readQueue(o.get("queue"))}
		if item.Kind == yaml.MappingNode && o.len() == 0 {
			o.fail("%s: expected %s, found nothing", called, yamltext.Join(form.names(), "or"))
		} else if item.Kind == yaml.MappingNode && called == "override" {
			o.readEnd()
		}
		if x.rule.Algorithm.New != nil {
			refuseOtherKeys(o.mapping, x.rule.Algorithm)
		}
		if ok && x.keep && x.suits(&o) {
			list = append(list, rule.Override{Who: o.who, N: o.says.N, Burst: o.says.Burst, Queue: o.says.Queue, Exempt: o.exempt, Until: o.until})
		}
		v.r.forget(before)
	}
	return list
}

// suits reports whether the algorithm can keep an override, and completes it by the limit of the rule.
func (x *variants) suits(o *override) bool {
	if o.exempt {
		o.says = limit.Limit{}
		return true
	}
	l := o.limit(x.rule.Limit)
	o.says = l
	if l == x.good {
		return true
	}
	meter, err := x.rule.Algorithm.New(l)
	if err != nil {
		o.fail("algo %s cannot keep this %s: %s", x.rule.Algorithm.Name(), o.key, strings.TrimPrefix(err.Error(), "limit: "))
		return false
	}
	if n := x.rule.Cost.N; n > 1 && l.N > 0 && !meter.Peek(limit.State{}, someTime, n).Allowed {
		o.fail("%s: no request that costs %d is ever within this limit, expected a lower cost or a larger limit", o.key, n)
		return false
	}
	x.good = l
	return true
}

// readClasses reads class and classes.
func (x *variants) readClasses(m mapping) {
	v, list := m.get("class"), m.get("classes")
	if !v.given() && !list.given() {
		return
	}
	if text, ok := v.text(); ok {
		x.rule.Class = readNaming(v, text)
	}
	if list.given() && list.node.Kind == yaml.MappingNode && list.len() == 0 {
		list.fail("classes: expected names of classes and their limits, found nothing")
	}
	seen := map[string]int{}
	x.rule.Classes = x.read(list, "names of classes", "class", classKeys, func(v value) (rule.Who, bool) {
		v.form = classNameForm
		name, ok := v.text()
		switch {
		case !ok:
			return rule.Who{}, false
		case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
			v.expected("characters that can be printed")
		case seen[name] > 0:
			v.fail("classes: this name is already in line %d", seen[name])
		}
		seen[name] = v.node.Line
		return rule.Who{Value: name}, true
	})
}

// readWho reads one exception of a rule for these actors. actor is nil if the rule's actors could not be
// read. seen has the lines of those before.
func readWho(v value, actor []rule.Actor, seen map[string]int32) (rule.Who, bool) {
	text, ok := v.text()
	if !ok {
		return rule.Who{}, false
	}
	var w rule.Who
	err := w.UnmarshalText([]byte(text))
	if err == nil && actor != nil {
		err = w.Fits(actor)
	}
	if err != nil {
		v.fail("%s: %v", v.key, err)
		return w, false
	}
	name := w.String() // a Who is large
	if first := seen[name]; first > 0 {
		v.fail("%s: this value is already in line %d", v.key, first)
	}
	seen[name] = int32(v.node.Line)
	return w, true
}

// readEnd reads what an override has and a class does not: exempt and until.
func (o *override) readEnd() {
	o.exempt = o.get("exempt").truth()
	limited := o.get("rpu").given() || o.get("burst").given() || o.get("queue").given()
	switch {
	case o.get("exempt").given() && limited:
		o.failKey("exempt", "exempt: expected either an exemption, or rpu, burst or queue")
	case o.get("exempt").given() && !o.exempt:
		o.failKey("exempt", "exempt: expected true, or another limit and no exempt")
	case !o.get("exempt").given() && !limited && o.get("until").given():
		o.fail("override: expected rpu, burst, queue or exempt beside until")
	}
	v := o.get("until")
	text, ok := v.text()
	if !ok {
		return
	}
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		v.expected("a moment such as 2026-12-01T00:00:00Z")
		return
	}
	o.until = end.UTC()
	if o.until.Before(time.Now()) {
		o.r.warn(v.node, "until: this moment is in the past, so the override has no effect; remove it")
	}
}

// limit returns the limit l of a rule, changed by the keys of the override.
func (o *override) limit(l limit.Limit) limit.Limit {
	if o.get("rpu").given() {
		l.N = o.says.N
	}
	if o.get("burst").given() {
		l.Burst = o.says.Burst
	}
	if o.get("queue").given() {
		l.Queue = o.says.Queue
	}
	return l
}
