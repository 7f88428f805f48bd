// SPDX-License-Identifier: MIT

package plan

import (
	"slices"
	"sync/atomic"
	"weak"

	"github.com/diana-limiter/diana/rule"
)

// Prepared is a method and a path. It finds their rules once for each Set that it is used with in turn, and it
// keeps no Set alive. It is safe for concurrent use.
type Prepared struct {
	Method, Path string // must not change after the first Find

	found atomic.Pointer[found]
}

// found is what Set.Find has found.
type found struct {
	set        weak.Pointer[Set]
	rules      []*Rule
	bandwidths []*Bandwidth
	strange    *rule.PathError
}

// Find is what Find of the Set is. A request costs as much as there if it has another method or path, or several.
func (p *Prepared) Find(s *Set, m *Match, r *rule.Request) *rule.PathError {
	if r.Path != p.Path || r.Method != p.Method || len(r.OtherPaths)+len(r.OtherMethods) > 0 || s.methods && overrides(r) {
		return s.Find(m, r)
	}
	f := p.found.Load()
	if f == nil || f.set != s.self {
		f = &found{set: s.self, strange: s.Find(m, r)}
		if f.strange == nil {
			f.rules, f.bandwidths = slices.Clone(m.Rules), slices.Clone(m.Bandwidths)
		}
		p.found.Store(f)
	}
	if f.strange == nil {
		m.Rules, m.Bandwidths = f.rules, append(m.Bandwidths[:0], f.bandwidths...)
	}
	return f.strange
}

// overrides reports whether the header of a request names a method.
func overrides(r *rule.Request) bool {
	return (r.HTTP != nil || r.Native != nil) &&
		slices.ContainsFunc(MethodOverrides[:], func(field string) bool { return len(linesOf(r, field)) > 0 })
}
