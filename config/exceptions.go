// SPDX-License-Identifier: MIT

package config

import (
	"strings"

	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// longestWho is the length of "=" and the longest value that keys hold unhashed.
const longestWho = 257

// An override is read before the limit of its rule is known.
type override struct {
	mapping
	who  rule.Who
	says limit.Limit // the keys that are given
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
	v := m.get("overrides")
	if v.given() && v.node.Kind != yaml.MappingNode {
		v.expected("a mapping of values, addresses or networks to other limits")
		return except, nil
	}
	for i := 0; v.given() && i < len(v.node.Content); i += 2 {
		name, item := v.node.Content[i], v.node.Content[i+1]
		if name.Tag == "!!merge" {
			v.r.fail(name, noMerging)
			continue
		}
		w, ok := readWho(value{r: v.r, key: v.key, form: whoForm, node: name}, actor, seen)
		o := override{mapping: value{r: v.r, key: "override", form: overrideKeys, node: item}.mapping(), who: w}
		o.says = limit.Limit{N: readN(o.get("rpu"), algo), Burst: o.get("burst").whole(), Queue: readQueue(o.get("queue"))}
		if item.Kind == yaml.MappingNode && len(item.Content) == 0 {
			o.fail("override: expected %s, found nothing", yamltext.Join(overrideKeys.names(), "or"))
		}
		if ok {
			overrides = append(overrides, o)
		}
	}
	return except, overrides
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

// kept returns the overrides of a rule. It reports those that the algorithm cannot keep.
func kept(overrides []override, r *rule.Rule) (list []rule.Override) {
	good := map[limit.Limit]bool{}
	for i := range overrides {
		o := &overrides[i]
		l := o.limit(r.Limit)
		if !good[l] {
			m, err := r.Algorithm.New(l)
			if err != nil {
				o.fail("algo %s cannot keep this override: %s", r.Algorithm.Name(), strings.TrimPrefix(err.Error(), "limit: "))
				continue
			}
			if n := r.Cost.N; n > 1 && l.N > 0 && !m.Peek(limit.State{}, someTime, n).Allowed {
				o.fail("override: no request that costs %d is ever within this limit, expected a lower cost or a larger limit", n)
				continue
			}
			good[l] = true
		}
		list = append(list, rule.Override{Who: o.who, N: l.N, Burst: l.Burst, Queue: l.Queue})
	}
	return list
}
