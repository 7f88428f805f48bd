// SPDX-License-Identifier: MIT

package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// A mapping is a value that was read as keys and their values.
type mapping struct {
	value
	known  keys
	fields map[string]field // nil: the value is no mapping
}

type field struct{ key, value *yaml.Node }

const noMerging = "merge keys (<<) are no part of YAML 1.2, expected the keys themselves"

// mapping reads a mapping. It reports unknown, repeated and missing keys.
func (v value) mapping() mapping {
	m := mapping{value: v, known: v.form.(interface{ mapping() keys }).mapping()}
	if !v.given() {
		return m
	}
	if v.node.Kind != yaml.MappingNode {
		v.expected("a mapping (" + strings.Join(m.known.names(), ", ") + ")")
		return m
	}
	m.fields = map[string]field{}
	for i := 0; i < len(v.node.Content); i += 2 {
		m.add(v.node.Content[i], v.node.Content[i+1])
	}
	for _, k := range m.known.list {
		if k.required && !m.get(k.name).given() {
			m.fail("%s lacks %s", m.known.of, k.name)
		}
		if k.with == "" || !m.get(k.name).given() || m.get(k.with).given() {
			continue
		}
		alone := "none"
		if other, _ := m.known.named(k.with); other.with == "" {
			alone = "the " + k.with + " alone"
		}
		m.failKey(k.name, "%s has a %s and no %s, expected both or %s", m.known.of, k.name, k.with, alone)
	}
	return m
}

func (m mapping) add(key, val *yaml.Node) {
	known, ok := m.known.named(key.Value)
	switch first, twice := m.fields[known.name]; {
	case key.Kind != yaml.ScalarNode:
		m.r.fail(key, "expected one of the keys %s", join(m.known.names(), "and"))
	case key.Tag == "!!merge":
		m.r.fail(key, noMerging)
	case !ok:
		m.r.fail(key, "unknown key %s of %s, expected %s%s", quote(key.Value), m.known.of,
			join(m.known.names(), "or"), didYouMean(key.Value, m.known.names()))
	case twice:
		m.r.fail(key, "key %s is given twice, first in line %d", quote(key.Value), first.key.Line)
	default:
		m.fields[known.name] = field{key, val}
	}
}

// get returns the value of a key.
func (m mapping) get(name string) value {
	known, _ := m.known.named(name)
	return value{r: m.r, key: name, form: known.form, node: m.fields[name].value}
}

// failKey records an error at a key that is given.
func (m mapping) failKey(key, format string, args ...any) {
	m.r.fail(m.fields[key].key, format, args...)
}
