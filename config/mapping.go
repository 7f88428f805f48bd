// SPDX-License-Identifier: MIT

package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// keys are what a mapping may hold.
type keys struct {
	of    string // what has these keys, in words
	names []string
	also  map[string]string // other spellings of names
}

// A mapping is a value that was read as keys and their values.
type mapping struct {
	value
	known  keys
	fields map[string]field // nil: the value is no mapping
}

type field struct{ key, value *yaml.Node }

// mapping reads a mapping. Keys that are not known or come twice are errors.
func (v value) mapping(known keys) mapping {
	m := mapping{value: v, known: known}
	if !v.given() {
		return m
	}
	if v.node.Kind != yaml.MappingNode {
		v.expected("a mapping (" + strings.Join(known.names, ", ") + ")")
		return m
	}
	m.fields = map[string]field{}
	for i := 0; i < len(v.node.Content); i += 2 {
		m.add(v.node.Content[i], v.node.Content[i+1])
	}
	return m
}

func (m mapping) add(key, val *yaml.Node) {
	name := key.Value
	if also, ok := m.known.also[name]; ok {
		name = also
	}
	switch first, twice := m.fields[name]; {
	case key.Kind != yaml.ScalarNode:
		m.r.fail(key, "expected one of the keys %s", join(m.known.names, "and"))
	case key.Tag == "!!merge":
		m.r.fail(key, "merge keys (<<) are no part of YAML 1.2, expected the keys themselves")
	case !slices.Contains(m.known.names, name):
		m.r.fail(key, "unknown key %s of %s, expected %s%s", quote(name), m.known.of,
			join(m.known.names, "or"), didYouMean(name, m.known.names))
	case twice:
		m.r.fail(key, "key %s is given twice, first in line %d", quote(key.Value), first.key.Line)
	default:
		m.fields[name] = field{key, val}
	}
}

// get returns the value of a key.
func (m mapping) get(key string) value { return value{r: m.r, key: key, node: m.fields[key].value} }

// require returns the value of a key that must be given.
func (m mapping) require(key string) value {
	v := m.get(key)
	if !v.given() && m.fields != nil {
		m.fail("%s lacks %s", m.known.of, key)
	}
	return v
}

// failKey records an error at a key that is given.
func (m mapping) failKey(key, format string, args ...any) {
	m.r.fail(m.fields[key].key, format, args...)
}
