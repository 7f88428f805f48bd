// SPDX-License-Identifier: MIT

package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// urlOf returns the url of Diana for a path of nginx, or "" if there is none. nginx compares a location with a
// path that it has decoded, so bytes of the path that mean something in a url are encoded.
func urlOf(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"%?#<>\^{}|`+"`;", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	var p rule.Pattern
	if p.UnmarshalText([]byte(b.String())) != nil || strings.ContainsAny(path, "{}") {
		return ""
	}
	if url := cmp.Or(strings.TrimSuffix(b.String(), "/"), "/"); p.Method == "" && strings.Count(p.Path, "/") == strings.Count(url, "/") {
		return url
	}
	return "" // with a dot segment or an empty one
}

// covers reports whether a url covers another.
func covers(url, other string) bool {
	return url == "/" || other == url || strings.HasPrefix(other, url) && other[len(url)] == '/'
}

// root is a url whose entry has a limit.
type root struct {
	url   string
	place *place
	over  []*place // that the url covers and the limit does not
	below bool     // the place is one path, and the url covers paths below it
}

// excess describes what the url covers and the limit does not.
func (r *root) excess() string {
	if len(r.over) == 0 {
		if r.below {
			return "paths below " + plain(r.url)
		}
		return ""
	}
	text := r.over[0].String()
	if n := len(r.over) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// cover returns the fewest urls that cover some places, and the places that no url covers. has reports whether the
// limit applies to a place.
func (c *nginx) cover(in []*place, has func(*place) bool) (roots []*root, lost []*place) {
	sorted := slices.Clone(in)
	slices.SortStableFunc(sorted, func(a, b *place) int {
		if c := cmp.Compare(len(a.url), len(b.url)); c != 0 || (a.kind == "=") == (b.kind == "=") {
			return c
		}
		if a.kind == "=" { // behind a prefix
			return 1
		}
		return -1
	})
	covered := func(url string) bool {
		return slices.ContainsFunc(roots, func(r *root) bool { return covers(r.url, url) })
	}
	for _, p := range sorted {
		if p.url != "" && !covered(p.url) {
			roots = append(roots, &root{url: p.url, place: p})
		}
	}
	slices.SortFunc(roots, func(a, b *root) int { return cmp.Compare(a.place.order, b.place.order) })
	for _, p := range in {
		if p.url == "" && !covered(p.scope()) {
			lost = append(lost, p)
		}
	}
	for _, r := range roots {
		for _, s := range c.servers {
			c.addOver(r, s, has)
		}
		slices.SortFunc(r.over, func(a, b *place) int { return cmp.Compare(a.order, b.order) })
		r.over = slices.Compact(r.over)
	}
	return roots, lost
}

// scope returns a url that covers what the place can match.
func (p *place) scope() string {
	switch {
	case p.url != "":
		return p.url
	case p.kind != "~": // a path with braces or empty segments
		before, _, _ := strings.Cut(p.path, "{")
		return cmp.Or(urlOf(before[:strings.LastIndexByte(before, '/')+1]), "/")
	case p.parent != nil:
		return p.parent.scope()
	}
	return "/"
}

// opens adds the blocks whose regular expressions nginx looks at for a path of the place. They are the place itself and
// each block around it, but for the one around a place with ^~. The server is nil.
func (p *place) opens(open map[*place]bool) {
	for at := p; at != nil && p.kind != "="; at = at.parent {
		if at == p {
			open[p] = true
		}
		if at.kind != "^~" {
			open[at.parent] = true
		}
	}
}

// handler returns the place that handles a request for a url, if no regular expression and no = does: the longest
// location, then the longest inside it.
func (s *server) handler(url string) (found *place) {
	for parent := found; ; parent = found {
		for _, p := range s.places {
			if p.parent == parent && p.url != "" && p.kind != "=" && !p.regex && covers(p.url, url) && (found == parent || len(p.path) > len(found.path)) {
				found = p
			}
		}
		if found == parent {
			return found
		}
	}
}

// addOver adds the places of a server that the url covers and the limit does not. Where that depends on the order of
// locations or on what a regular expression matches, it adds too many.
func (c *nginx) addOver(r *root, s *server, has func(*place) bool) {
	handler := s.handler(r.url)
	open := map[*place]bool{} // see opens; of the places that have the limit
	own := r.place.server == s
	regex := own && r.place.regex // nginx has found another place before, and looks at regular expressions in it
	for _, p := range s.places {
		if p.url == "" || p.kind == "=" || p.regex {
			continue
		}
		if (has(p) || regex) && covers(r.url, p.url) {
			p.opens(open)
		}
	}
	if handler != nil {
		reached := map[*place]bool{}
		handler.opens(reached)
		switch {
		case own && r.place.kind == "=" && (r.place.parent == nil || reached[r.place.parent]):
			r.below = !has(handler)
		case regex && reached[r.place.parent]:
		case !has(handler):
			r.over = append(r.over, handler)
		}
		if has(handler) || regex {
			maps.Copy(open, reached)
		}
	}
	if regex {
		open[r.place.parent], open[r.place] = true, true
	}
	for _, p := range s.places {
		switch {
		case has(p) || p == handler:
		case p.regex && regex && p.parent == r.place.parent && p.order > r.place.order: // the first one that matches counts
		case p.regex:
			if open[p.parent] && (covers(r.url, p.scope()) || covers(p.scope(), r.url)) {
				r.over = append(r.over, p)
			}
		case covers(r.url, p.scope()):
			r.over = append(r.over, p)
		}
	}
}
