// SPDX-License-Identifier: MIT

package config

import (
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// longestWho is the length of "=" and the longest value that keys hold unhashed.
const longestWho = 257

// longestMoment is the length of a moment with nanoseconds.
const longestMoment = 35

// An override, or a class, is read before the limit of its rule is known.
type override struct {
	mapping
	who  rule.Who
	says limit.Limit // the keys that are given

	exempt bool
	until  time.Time
}

// readExceptions reads except and overrides. To name a client twice is an error.
func readExceptions(m mapping, actor []rule.Actor, algo limit.Algorithm) (except []rule.Who, overrides []override) {
	if !m.get("except").given() && !m.get("overrides").given() {
		return nil, nil
	}
	seen := map[rule.Who]*yaml.Node{}
	for _, item := range m.get("except").list() {
		if w, ok := readWho(item, actor, seen); ok {
			except = append(except, w)
			if w.Network.IsValid() && w.Network.Bits() == 0 {
				m.r.warn(item.node, "except: this is every address of its kind, so the rule judges no one who has one")
			}
		}
	}
	overrides = readVariants(m.get("overrides"), "values, addresses or networks", "override", overrideKeys, algo, func(v value) (rule.Who, bool) {
		v.form = whoForm
		return readWho(v, actor, seen)
	})
	return except, overrides
}

// readVariants reads a mapping to other limits. of says what its keys are, and called what its values are
// called, with which keys. read reads a key.
func readVariants(v value, of, called string, form keys, algo limit.Algorithm, read func(value) (rule.Who, bool)) (list []override) {
	if v.given() && v.node.Kind != yaml.MappingNode {
		v.expected("a mapping of " + of + " to other limits")
		return nil
	}
	for i := 0; v.given() && i < len(v.node.Content); i += 2 {
		name, item := v.node.Content[i], v.node.Content[i+1]
		if name.Tag == "!!merge" {
			v.r.fail(name, noMerging)
			continue
		}
		w, ok := read(value{r: v.r, key: v.key, node: name})
		o := override{mapping: value{r: v.r, key: called, form: form, node: item}.mapping(), who: w}
		o.says = limit.Limit{N: readN(o.get("rpu"), algo), Burst: o.get("burst").whole(), Queue: readQueue(o.get("queue"))}
		if item.Kind == yaml.MappingNode && len(item.Content) == 0 {
			o.fail("%s: expected %s, found nothing", called, yamltext.Join(form.names(), "or"))
		} else if item.Kind == yaml.MappingNode && called == "override" {
			o.readEnd()
		}
		if ok {
			list = append(list, o)
		}
	}
	return list
}

// readClasses reads class and classes.
func readClasses(m mapping, algo limit.Algorithm) (header rule.Actor, classes []override) {
	v, list := m.get("class"), m.get("classes")
	if !v.given() && !list.given() {
		return rule.Actor{}, nil
	}
	if text, ok := v.text(); ok {
		kind, name, _ := strings.Cut(text, ":")
		if kind != "header" && kind != "client" {
			v.expected("header:NAME or client:NAME")
		} else if !httptext.IsToken(name) {
			v.fail("class: expected the name of a header, found %q", name)
		}
		header = rule.Actor{Kind: kind, Name: http.CanonicalHeaderKey(name)}
	}
	if list.given() && list.node.Kind == yaml.MappingNode && len(list.node.Content) == 0 {
		list.fail("classes: expected names of classes and their limits, found nothing")
	}
	seen := map[string]*yaml.Node{}
	classes = readVariants(list, "names of classes", "class", classKeys, algo, func(v value) (rule.Who, bool) {
		v.form = classNameForm
		name, ok := v.text()
		switch {
		case !ok:
			return rule.Who{}, false
		case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
			v.expected("characters that can be printed")
		case seen[name] != nil:
			v.fail("classes: this name is already in line %d", seen[name].Line)
		}
		seen[name] = v.node
		return rule.Who{Value: name}, true
	})
	return header, classes
}

// readWho reads one exception of a rule for these actors. actor is nil if the rule's actors could not be
// read.
func readWho(v value, actor []rule.Actor, seen map[rule.Who]*yaml.Node) (rule.Who, bool) {
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
	if first := seen[w]; first != nil {
		v.fail("%s: this value is already in line %d", v.key, first.Line)
	}
	seen[w] = v.node
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

// kept returns the overrides or classes of a rule. It reports those that the algorithm cannot keep.
func kept(overrides []override, r *rule.Rule) (list []rule.Override) {
	good := map[limit.Limit]bool{}
	for i := range overrides {
		o := &overrides[i]
		if o.exempt {
			list = append(list, rule.Override{Who: o.who, Exempt: true, Until: o.until})
			continue
		}
		l := o.limit(r.Limit)
		if !good[l] {
			m, err := r.Algorithm.New(l)
			if err != nil {
				o.fail("algo %s cannot keep this %s: %s", r.Algorithm.Name(), o.key, strings.TrimPrefix(err.Error(), "limit: "))
				continue
			}
			if n := r.Cost.N; n > 1 && l.N > 0 && !m.Peek(limit.State{}, someTime, n).Allowed {
				o.fail("%s: no request that costs %d is ever within this limit, expected a lower cost or a larger limit", o.key, n)
				continue
			}
			good[l] = true
		}
		list = append(list, rule.Override{Who: o.who, N: l.N, Burst: l.Burst, Queue: l.Queue, Until: o.until})
	}
	return list
}
