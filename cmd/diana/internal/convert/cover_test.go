// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"
)

// spot is a location of the model, or the server.
type spot struct {
	kind, path string // kind is "", "^~", "=" or "~"
	zones      []int  // of its own limits
	answers    bool   // by return
	inner      []*spot
}

// write writes the blocks of the model. Each limit has a line of its own, of which lines has the number.
func (s *spot) write(b *strings.Builder, lines map[int]int) {
	for _, z := range s.zones {
		fmt.Fprintf(b, "limit_req zone=z%d;\n", z)
		lines[z] = strings.Count(b.String(), "\n")
	}
	if s.answers {
		b.WriteString("return 200;\n")
	}
	for _, in := range s.inner {
		fmt.Fprintf(b, "location %s %s {\n", in.kind, in.path)
		in.write(b, lines)
		b.WriteString("}\n")
	}
}

// find returns the location that handles a path below s, or nil. final means that no regular expression outside is
// looked at. It is the search of nginx.
func (s *spot) find(path string) (found *spot, final bool) {
	for _, in := range s.inner {
		switch {
		case in.kind == "=" && in.path == path:
			return in, true
		case (in.kind == "" || in.kind == "^~") && strings.HasPrefix(path, in.path) && (found == nil || len(in.path) > len(found.path)):
			found = in
		}
	}
	regexes := true
	if found != nil {
		regexes = found.kind != "^~"
		if deeper, final := found.find(path); final {
			return deeper, true
		} else if deeper != nil {
			found = deeper
		}
	}
	if regexes {
		for _, in := range s.inner {
			if in.kind == "~" && regexp.MustCompile(in.path).MatchString(path) {
				if deeper, _ := in.find(path); deeper != nil {
					return deeper, true
				}
				return in, true
			}
		}
	}
	return found, false
}

// limits returns the zones that limit a path.
func (s *spot) limits(path string) []int {
	found, _ := s.find(path)
	if found == nil {
		found = s
	}
	if found.answers {
		return nil
	}
	var zones []int
	for at := s; at != nil; { // from the outside to the inside
		if len(at.zones) > 0 {
			zones = at.zones
		}
		if at == found {
			break
		}
		i := slices.IndexFunc(at.inner, func(in *spot) bool { return in.has(found) })
		at = at.inner[i]
	}
	return zones
}

// has reports whether a location is s or inside it.
func (s *spot) has(other *spot) bool {
	return s == other || slices.ContainsFunc(s.inner, func(in *spot) bool { return in.has(other) })
}

// A random server has random locations, one inside another too. No rule that refuses limits a path that nginx does not
// limit by the same zone. Each limit of a path has a rule for it, or a remark.
func TestCover(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	segments := []string{"a", "b", "c.x"}
	rules := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		zones := 0
		own := func(most int) (list []int) {
			for range r.IntN(most + 1) {
				list = append(list, zones)
				zones++
			}
			return list
		}
		var locations func(above string, depth int) []*spot
		locations = func(above string, depth int) (list []*spot) {
			taken := map[string]bool{}
			for range r.IntN(4) {
				s := &spot{path: above + "/" + segments[r.IntN(3)], zones: own(1), answers: r.IntN(12) == 0}
				switch r.IntN(7) {
				case 0:
					s.kind = "="
				case 1:
					s.kind = "^~"
				case 2:
					s.kind, s.path = "~", []string{`\.x$`, "^/a", "^/a/b$", "/b", "^/a/c\\.x$"}[r.IntN(5)]
				case 3:
					if above == "" {
						s.path = "/"
					}
				}
				if name := strings.TrimPrefix(s.kind, "^~") + s.path; !taken[name] {
					taken[name] = true
					if s.kind == "" || s.kind == "^~" {
						if depth < 2 && r.IntN(2) == 0 {
							s.inner = locations(strings.TrimSuffix(s.path, "/"), depth+1)
						}
					}
					list = append(list, s)
				}
			}
			return list
		}
		top := &spot{zones: own(1), inner: locations("", 0)}
		var b strings.Builder
		lines := map[int]int{}
		b.WriteString("server {\n")
		top.write(&b, lines)
		b.WriteString("}\n")
		for z := range zones {
			fmt.Fprintf(&b, "limit_req_zone $remote_addr zone=z%d:1m rate=1r/s;\n", z)
		}
		result, err := Nginx("a", b.String(), "")
		if err != nil {
			t.Fatal(err)
		}
		c := checkResult(t, result)
		for range 30 {
			path := ""
			for range 1 + r.IntN(4) {
				path += "/" + segments[r.IntN(3)]
			}
			want := top.limits(path)
			got := map[int]bool{}
			for _, e := range c.Limits {
				if e.URL.Path != "/" && e.URL.Path != path && !strings.HasPrefix(path, e.URL.Path+"/") {
					continue
				}
				for _, rule := range e.Rules {
					name, _, _ := strings.Cut(rule.Name, "-")
					z, _ := strconv.Atoi(name[1:])
					got[z] = true
					if !rule.Shadow {
						rules++
						if !slices.Contains(want, z) {
							t.Fatalf("seed %d: the rule z%d limits %s, and nginx does not, %v\n%s%s", seed, z, path, want, &b, result.YAML)
						}
					}
				}
			}
			for _, z := range want {
				remark := regexp.MustCompile(fmt.Sprintf(`a:%d:\d+: this limit has no rule for`, lines[z]))
				if !got[z] && !remark.MatchString(result.YAML) {
					t.Fatalf("seed %d: nginx limits %s by z%d, which has no rule for it and no remark\n%s%s", seed, path, z, &b, result.YAML)
				}
			}
		}
	}
	if rules < 3000 {
		t.Errorf("only %d rules refuse in all, so the test says little", rules)
	}
}
