// SPDX-License-Identifier: MIT

package config

import (
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/yamltext"
	"go.yaml.in/yaml/v4"
)

// A mapping is a value that was read as keys and their values.
type mapping struct {
	value
	known  keys
	fields []field // by the index of the key in known; nil: the value is no mapping
}

// field is a key that is given, with its value. The zero value is a key that is not given.
type field struct{ key, value *yaml.Node }

// fieldsFor returns n fields that are not given, until forget.
func (r *reader) fieldsFor(n int) []field {
	from := len(r.fields)
	r.fields = slices.Grow(r.fields, n)[:from+n]
	fields := r.fields[from : from+n : from+n]
	clear(fields)
	return fields
}

// forget ends the use of the mappings that were read since there were n fields. The next ones use their memory.
func (r *reader) forget(n int) { r.fields = r.fields[:n] }

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
	m.fields = v.r.fieldsFor(len(m.known.list))
	for key, val := range v.pairs {
		m.add(key, val)
	}
	for i := range m.known.list {
		k, given := &m.known.list[i], m.fields[i].key != nil
		if k.required && !given {
			m.fail("%s lacks %s", m.known.of, k.name)
		}
		if k.with == "" || !given || m.get(k.with).given() {
			continue
		}
		alone := "none"
		if other := m.known.list[m.known.index(k.with)]; other.with == "" {
			alone = "the " + k.with + " alone"
		}
		m.failKey(k.name, "%s has %s but no %s, expected both or %s", m.known.of, k.name, k.with, alone)
	}
	return m
}

func (m mapping) add(key, val *yaml.Node) {
	i := m.known.index(key.Value)
	switch {
	case key.Kind != yaml.ScalarNode:
		m.r.fail(key, "expected one of the keys %s", yamltext.Join(m.known.names(), "and"))
	case key.Tag == "!!merge":
		m.r.fail(key, noMerging)
	case i < 0:
		m.r.fail(key, "unknown key %s of %s%s, expected %s", yamltext.Quote(key.Value), m.known.of,
			yamltext.DidYouMean(key.Value, m.known.names()), yamltext.Join(m.known.names(), "or"))
	case m.fields[i].key != nil:
		m.r.fail(key, "key %s is given twice, first in line %d", yamltext.Quote(key.Value), m.fields[i].key.Line)
	default:
		m.fields[i] = field{key, val}
	}
}

// get returns the value of a key. The value of a key that the mapping cannot have is not given.
func (m mapping) get(name string) value {
	v := value{r: m.r, key: name}
	if i := m.known.index(name); i >= 0 {
		v.form = m.known.list[i].form
		if m.fields != nil {
			v.node = m.fields[i].value
		}
	}
	return v
}

// failKey records an error at a key that is given.
func (m mapping) failKey(key, format string, args ...any) {
	m.r.fail(m.fields[m.known.index(key)].key, format, args...)
}
