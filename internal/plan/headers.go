// SPDX-License-Identifier: MIT

package plan

import (
	"net/http"

	"github.com/diana-limiter/diana/rule"
)

// Headers returns the headers that a configuration reads, by their canonical names. The value is true if a class, a
// priority or the method is read from the header, and not only an actor, an address or a cost.
func Headers(entries []rule.Entry, id *rule.Identity) map[string]bool {
	read := map[string]bool{}
	add := func(chooses bool, name string) {
		name = http.CanonicalHeaderKey(name)
		read[name] = read[name] || chooses
	}
	find := func(chooses bool, actors ...rule.Actor) {
		for _, a := range actors {
			switch a.Kind {
			case "header", "client":
				add(chooses, a.Name)
			case "cookie":
				add(chooses, "Cookie")
			}
		}
	}
	find(false, id.Account...)
	find(false, id.Device...)
	if len(id.TrustedProxies) > 0 {
		add(false, "X-Forwarded-For")
	}
	for i := range entries {
		e := &entries[i]
		if e.URL.Method != "" {
			for _, name := range MethodOverrides {
				add(true, name)
			}
		}
		if e.Bandwidth != nil {
			find(false, e.Bandwidth.Actor...)
		}
		for j := range e.Rules {
			r := &e.Rules[j]
			find(false, r.Actor...)
			find(true, r.Class, r.Priority)
			if r.Cost.Header != "" {
				add(false, r.Cost.Header)
			}
		}
	}
	return read
}
