// SPDX-License-Identifier: MIT

package descriptors

import (
	"slices"

	"github.com/diana-limiter/diana/internal/yamltext"
	"go.yaml.in/yaml/v4"
)

// mapping is a value that was read as keys and their values.
type mapping struct {
	value
	fields map[string]field
}

type field struct{ key, value *yaml.Node }

// The keys of the mappings.
var (
	fileKeys       = []string{"domain", "descriptors"}
	descriptorKeys = []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold",
	}
	rateLimitKeys = []string{
		"unit", "requests_per_unit", "unlimited", "name", "replaces", "algo", "burst", "slices", "queue", "on_error", "scope", "debit",
	}
	replacesKeys = []string{"name"}
)

// absent are keys that a rule of a configuration has and a rate_limit cannot have, with the reasons.
var absent = map[string]string{
	"charge": "nobody says how the request was answered, so a refund is not possible",
	"wait":   "only algo LB lets requests wait here, for as long as its queue says",
}

// The names of the mappings in messages.
const (
	aFile       = "a file"
	aDescriptor = "a descriptor"
	aRateLimit  = "a rate_limit"
	aReplaces   = "an item of replaces"
)

// mapping reads a mapping. It reports unknown and repeated keys.
func (v value) mapping(of string, known []string) (m mapping, ok bool) {
	if v.node.Kind != yaml.MappingNode {
		v.expected("a mapping (" + yamltext.Join(known, "and") + ")")
		return m, false
	}
	m = mapping{v, make(map[string]field, len(v.node.Content)/2)}
	for i := 0; i < len(v.node.Content); i += 2 {
		key, val := v.node.Content[i], v.node.Content[i+1]
		first, given := m.fields[key.Value]
		switch {
		case key.Kind == yaml.ScalarNode && key.Tag == "!!merge":
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			v.failAt(key, "expected a text as key, found %s", found(key))
		case !slices.Contains(known, key.Value):
			v.failAt(key, "unknown key %s of %s%s", quote(key.Value), of, instead(key.Value, of, known))
		case given:
			v.failAt(key, "key %s is given twice, first in line %d", quote(key.Value), first.key.Line)
		default:
			m.fields[key.Value] = field{key, val}
		}
	}
	for i := 0; i < len(v.node.Content); i += 2 {
		if key := v.node.Content[i]; key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			m.merge(v.node.Content[i+1], of, known)
		}
	}
	return m, true
}

// merge adds the keys of the value of a merge key (<<). envoyproxy/ratelimit reads YAML 1.1, which has
// them. A key of the mapping itself counts before one that is merged, and of several the first.
func (m mapping) merge(n *yaml.Node, of string, known []string) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item.Kind != yaml.MappingNode {
				m.failAt(item, "<<: expected a mapping, found %s", found(item))
				continue
			}
			m.merge(item, of, known)
		}
	case yaml.MappingNode:
		merged, _ := value{m.r, m.path, n}.mapping(of, known)
		for key, f := range merged.fields {
			if _, given := m.fields[key]; !given {
				m.fields[key] = f
			}
		}
	default:
		m.failAt(n, "<<: expected a mapping, found %s", found(n))
	}
}

// instead says which key the author probably meant, or why there is no such key.
func instead(key, of string, known []string) string {
	switch reason := absent[key]; {
	case of == aRateLimit && reason != "":
		return ": " + reason
	case of == aRateLimit && slices.Contains(descriptorKeys, key):
		return ", expected it beside rate_limit"
	case of == aDescriptor && slices.Contains(rateLimitKeys, key):
		return ", expected it in rate_limit"
	}
	return yamltext.DidYouMean(key, known) + ", expected " + yamltext.Join(known, "or")
}

// get returns the value of a key.
func (m mapping) get(key string) value {
	path := key
	if m.path != "" {
		path = m.path + "." + key
	}
	return value{m.r, path, m.fields[key].value}
}

// failKey reports a mistake at a key that is given.
func (m mapping) failKey(key, format string, args ...any) {
	m.get(key).failAt(m.fields[key].key, format, args...)
}
