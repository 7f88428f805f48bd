// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The texts in rule.Request.Actors under which a program names the class of a client and the priority of a request.
const (
	classActor    = "class"
	priorityActor = "priority"
)

// classOf returns the name of the class of a client, or "" if it has none.
func (r *Rule) classOf(client *Client) string { return namedBy(r.class, r.Class, classActor, client) }

// LevelOf returns the level of a request's priority under a rule; 0 is the highest.
func (s *Set) LevelOf(r *Rule, client *Client) int64 {
	if len(r.Priorities) == 0 {
		return 0
	}
	name := namedBy(r.priority, r.Priority, priorityActor, client)
	if level := slices.Index(r.Priorities, name); level >= 0 && name != "" {
		return int64(level)
	}
	return int64(len(r.Priorities) / 2)
}

// AppendAccount appends a key of the account of a client, or of its address.
func (s *Set) AppendAccount(key []byte, client *Client) []byte {
	key, _ = appendKey(key, s.accounts, client)
	return key
}

// checkAdaptive returns an error if a rule says what an adaptive algorithm cannot keep.
func checkAdaptive(r *rule.Rule) error {
	if !r.Algorithm.Uses("measure") {
		if r.Measure != "" || r.HoldBegin || len(r.Priorities) > 0 {
			return errors.New("measure, hold and priorities are for adaptive concurrency")
		}
		return nil
	}
	if m := r.Measure; m != "" && m != "begin" && m != "byte" && m != "end" {
		return fmt.Errorf("measure is %q, expected begin, byte or end", m)
	}
	if len(r.Priorities) > bounds.MaxPriorities {
		return fmt.Errorf("there are %d priorities, expected at most %d", len(r.Priorities), bounds.MaxPriorities)
	}
	return nil
}

// namedBy returns the name that a program gives under actor, or that a credential or a header says, or "". It believes the header
// like that of a cost. Lines that differ name nothing, because upstreams differ in which one they read.
func namedBy(by *finder, header rule.Actor, actor string, client *Client) string {
	switch given := client.req.Actors[actor]; given {
	case "":
	case rule.Unclear: // a filter has found none
		return ""
	default:
		return given
	}
	if by != nil {
		if name := by.valueIn(client.req); name != rule.Unclear {
			return name
		}
		return ""
	}
	r := client.req
	if header.Kind != "client" && !trustsPeer(client.identity, r) {
		return ""
	}
	lines := linesOf(r, header.Name)
	if len(lines) == 0 || len(lines) > mostLines {
		return ""
	}
	class := httptext.Trim(lines[0])
	for _, line := range lines[1:] {
		if httptext.Trim(line) != class {
			return ""
		}
	}
	return class
}

// naming returns how a credential names a class or a priority, or nil if a header does. It completes
// the name of the header.
func (v *resolver) naming(key string, a *rule.Actor) (*finder, error) {
	if k := a.Kind; k == "header" || k == "client" {
		if !httptext.IsToken(a.Name) {
			return nil, fmt.Errorf("%s is %q, expected header:NAME or client:NAME", key, *a)
		}
		a.Name = http.CanonicalHeaderKey(a.Name)
		return nil, nil
	}
	f, ok := v.finder(*a)
	proved := slices.ContainsFunc(v.kinds, func(k rule.ActorKind) bool { return k.Kind == a.Kind && k.Proved })
	if !ok || !proved {
		return nil, fmt.Errorf("%s is %q, expected header:NAME or client:NAME", key, *a)
	}
	return &f, nil
}

// newClasses returns the variants of a rule for its classes, by name.
func newClasses(s *Set, r *Rule, known map[limit.Limit]*Rule) (map[string]*Rule, error) {
	if len(r.Classes) == 0 {
		return nil, nil
	}
	classes := make(map[string]*Rule, len(r.Classes))
	for i := range r.Classes {
		o := &r.Classes[i]
		name := o.Who.Value
		if name == "" || o.Who.Network.IsValid() {
			return nil, fmt.Errorf("classes: %v is no name of a class", o.Who)
		}
		if classes[name] != nil {
			return nil, fmt.Errorf("classes: %q is there twice", name)
		}
		v, err := variantFor(s, r, o, known)
		if err != nil {
			return nil, fmt.Errorf("classes: %q: %w", name, err)
		}
		classes[name] = v
	}
	return classes, nil
}
