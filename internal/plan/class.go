// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"net/http"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// classActor is the text in rule.Request.Actors under which a program names the class of a client.
const classActor = "class"

// classOf returns the name of the class of a client, or "" if it has none. It believes the header like that
// of a cost. Lines that differ name no class, because upstreams differ in which one they read.
func classOf(header rule.Actor, client *Client) string {
	switch given := client.req.Actors[classActor]; given {
	case "":
	case rule.Unclear: // a filter has found none
		return ""
	default:
		return given
	}
	r := client.req.HTTP
	if r == nil || header.Kind != "client" && !trustsPeer(client.identity, r) {
		return ""
	}
	lines := r.Header[header.Name]
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

// newClasses returns the variants of a rule for its classes, by name.
func newClasses(s *Set, r *Rule, known map[limit.Limit]*Rule) (map[string]*Rule, error) {
	if len(r.Classes) == 0 {
		return nil, nil
	}
	if k := r.Class.Kind; k != "header" && k != "client" || !httptext.IsToken(r.Class.Name) {
		return nil, fmt.Errorf("class is %q, expected header:NAME or client:NAME", r.Class)
	}
	r.Class.Name = http.CanonicalHeaderKey(r.Class.Name)
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
