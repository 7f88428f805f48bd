// SPDX-License-Identifier: MIT

package descriptors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Changes returns what differs from before, in words, one limit in each:
//
//	limit "shop.user" added: 5 per minute, W
//	limit "shop.path": requests_per_unit 5 → 10, debit off → on
//	limit "shop.key": unit minute → hour, its counters begin anew
//	limit "shop.plan" removed
//
// They are in the order of domains and keys.
func (t *Tree) Changes(before *Tree) (changes []string) {
	old, now := before.all(), t.all()
	paths := maps.Clone(old)
	maps.Copy(paths, now)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		name := paths[path].fullName
		switch was, is := old[path].limit(), now[path].limit(); {
		case was == nil && is != nil:
			changes = append(changes, fmt.Sprintf("limit %q added: %s", name, is.summary()))
		case was != nil && is == nil:
			changes = append(changes, fmt.Sprintf("limit %q removed", name))
		case was != nil && was.Unlimited != is.Unlimited:
			changes = append(changes, fmt.Sprintf("limit %q: %s → %s", name, was.summary(), is.summary()))
		default:
			if text := differences(old[path], now[path]); text != "" {
				changes = append(changes, fmt.Sprintf("limit %q: %s", name, text))
			}
		}
	}
	return changes
}

// named is a descriptor with its full name.
type named struct {
	*node    // nil: there is none
	fullName string
}

func (n named) limit() *Limit {
	if n.node == nil {
		return nil
	}
	return n.node.limit
}

// all returns all descriptors by their paths, in which a zero byte divides the levels.
func (t *Tree) all() map[string]named {
	all := map[string]named{}
	var add func(n *node, path, fullName string)
	add = func(n *node, path, fullName string) {
		all[path] = named{n, fullName}
		for key, below := range n.below {
			add(below, path+"\x00"+key, fullName+"."+key)
		}
	}
	for domain, root := range t.domains {
		add(root, domain, domain)
	}
	return all
}

// summary returns a limit in few words.
func (l *Limit) summary() string {
	if l.Unlimited {
		return "unlimited"
	}
	return fmt.Sprintf("%d per %s, %s", l.RequestsPerUnit, l.Unit, l.Rule.Algorithm.Name())
}

// said is a key of a file with its value.
type said struct {
	key, value string
	counter    bool // part of the name of the counter
}

// differences returns the keys whose values differ.
func differences(old, now named) string {
	var list []string
	anew := false
	was := old.says()
	for i, is := range now.says() {
		if is.value != was[i].value {
			list = append(list, fmt.Sprintf("%s %s → %s", is.key, cmp.Or(was[i].value, "none"), cmp.Or(is.value, "none")))
			anew = anew || is.counter
		}
	}
	if anew {
		list = append(list, "its counters begin anew")
	}
	return strings.Join(list, ", ")
}

// says returns the values of a descriptor, always for the same keys.
func (n named) says() []said {
	var of node
	if n.node != nil {
		of = *n.node
	}
	if of.limit == nil {
		of.limit = &Limit{Unlimited: true}
	}
	l, algo, unit := of.limit, "", ""
	if !l.Unlimited {
		algo, unit = l.Rule.Algorithm.Name(), l.Unit.String()
	}
	number := func(n int64) string { return strconv.FormatInt(max(n, 0), 10) }
	return []said{
		{"requests_per_unit", strconv.FormatUint(uint64(l.RequestsPerUnit), 10), false},
		{"unit", unit, true},
		{"algo", algo, true},
		{"burst", number(l.Rule.Limit.Burst), false},
		{"slices", number(l.Rule.Limit.Slices), false},
		{"queue", number(l.Rule.Limit.Queue), false},
		{"scope", string(l.Rule.Scope), true},
		{"on_error", l.Rule.OnError.String(), false},
		{"debit", onOff(l.Debit), false},
		{"name", l.Name, false},
		{"replaces", strings.Join(l.Replaces, " "), false},
		{"shadow_mode", onOff(l.Shadow), false},
		{"quota_mode", onOff(l.Quota), false},
		{"detailed_metric", onOff(l.Detailed), false},
		{"value_to_metric", onOff(of.valueToMetric), false},
		{"share_threshold", onOff(of.share), true},
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
