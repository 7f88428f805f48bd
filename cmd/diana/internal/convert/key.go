// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
)

// key is what a zone counts by.
type key struct {
	actors  []string
	except  []string // networks that are not limited
	methods []string // that are limited; none means all
	empty   string   // what a request can lack, so that nginx does not limit it; or empty
	remark  string   // about all rules of the zone
	why     string   // the reason if there is no such actor
}

var variable = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// keyOf returns the key of a zone.
func (c *nginx) keyOf(d *directive) *key {
	for _, a := range d.args {
		if name, _, ok := strings.Cut(a, "="); ok && (name == "zone" || name == "rate") || a == "sync" {
			continue
		}
		if m := variable.FindString(a); m != "" && m == a {
			if by := c.variables[strings.Trim(a, "${}")]; by != nil {
				return c.mapped(by)
			}
		}
		return c.key(a)
	}
	return &key{why: "there is no key"}
}

// key returns the key of a text with variables.
func (c *nginx) key(text string) *key {
	k := &key{}
	var empties []string
	never := variable.ReplaceAllString(text, "") != ""
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		name := m[1] + m[2]
		actor, empty := c.actor(name, k)
		switch {
		case actor == "":
			if k.why == "" {
				k.why = fmt.Sprintf("no actor of Diana is like $%s", name)
			}
			return k
		case empty != "":
			empties = append(empties, empty)
		default:
			never = true
		}
		if actor != "all" && !slices.Contains(k.actors, actor) {
			k.actors = append(k.actors, actor)
		}
	}
	switch {
	case len(k.actors) > bounds.MaxActors:
		k.why = fmt.Sprintf("an actor of Diana has at most %d parts", bounds.MaxActors)
	case len(k.actors) == 0:
		k.actors = []string{"all"}
	}
	if !never {
		k.empty = strings.Join(empties, " and ")
	} else if len(empties) > 0 && !slices.Contains(k.actors, "ip") {
		k.remark = fmt.Sprintf("nginx counts requests without %s together; Diana counts them by their address", strings.Join(empties, " or "))
	}
	return k
}

// actor returns the actor of a variable. empty is what the request lacks if the variable is empty. For a reason of its
// own it sets why.
func (c *nginx) actor(name string, k *key) (actor, empty string) {
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "ip", ""
	case "host", "http_host":
		return "host", ""
	case "server_name":
		for _, s := range c.servers {
			if len(s.names) == 0 || s.names[0] == "" {
				k.why = fmt.Sprintf("$server_name is empty in the server in line %d, which has no server_name, and nginx does not limit an empty key", s.d.line)
				return "", ""
			}
		}
		if len(c.servers) < 2 {
			return "all", ""
		}
		k.remark = "$server_name is one value for all names of a server; host is the name that the client asks for"
		return "host", ""
	}
	if by := c.variables[name]; by != nil {
		k.why = fmt.Sprintf("$%s is of the %s in line %d, and no actor of Diana is like it", name, by.name, by.line)
		return "", ""
	}
	prefix, rest, _ := strings.Cut(name, "_")
	switch {
	case rest == "":
	case prefix == "http":
		field := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(rest, "_", "-"))
		return "header:" + field, "the field " + field
	case prefix == "cookie":
		return "cookie:" + rest, "the cookie " + rest
	case prefix == "arg":
		return "query:" + rest, "the parameter " + rest
	}
	return "", ""
}

// mapped returns the key of a map that turns networks into keys: by the address itself, or by the value of a geo. This
// is how nginx exempts networks, because it does not limit an empty key.
func (c *nginx) mapped(by *directive) *key {
	from := strings.Trim(by.arg(0), "${}")
	var table [][2]string // network, result
	usual := ""
	no := func(format string, args ...any) *key {
		return &key{why: fmt.Sprintf("the %s in line %d: ", by.name, by.line) + fmt.Sprintf(format, args...)}
	}
	if by.name != "map" || len(by.args) != 2 {
		return no("it gives no key that Diana has")
	}
	results := map[string]string{}
	for _, d := range by.block {
		if len(d.args) != 1 || d.block != nil || strings.HasPrefix(d.name, "~") || d.name == "include" || d.name == "hostnames" {
			return no("%s is not understood", shown(d.name))
		}
		if d.name == "default" {
			usual = d.arg(0)
		} else {
			results[strings.TrimPrefix(d.name, `\`)] = d.arg(0)
		}
	}
	get := func(value string) string {
		if result, ok := results[value]; ok {
			return result
		}
		return usual
	}
	geo := c.variables[from]
	switch {
	case from == "request_method":
		return c.byMethod(usual, results, no)
	case from == "remote_addr":
		for _, d := range by.block {
			if d.name != "default" {
				table = append(table, [2]string{d.name, d.arg(0)})
			}
		}
	case geo != nil && geo.name == "geo" && (len(geo.args) == 1 || geo.arg(0) == "$remote_addr" || geo.arg(0) == "$binary_remote_addr"):
		otherwise := ""
		for _, d := range geo.block {
			switch {
			case len(d.args) != 1 || d.block != nil || d.name == "include" || d.name == "delete" || strings.HasPrefix(d.name, "proxy"):
				return no("%s in the geo in line %d is not understood", shown(d.name), geo.line)
			case d.name == "default":
				otherwise = d.arg(0)
			default:
				table = append(table, [2]string{d.name, get(d.arg(0))})
			}
		}
		usual = get(otherwise)
	default:
		return no("Diana exempts networks and values, and no $%s", from)
	}
	if usual == "" {
		return no("it limits only some clients, and a rule limits all but its exceptions")
	}
	k := c.key(usual)
	var exempt, limited []netip.Prefix
	for _, row := range table {
		network, err := netip.ParsePrefix(row[0])
		if address, failed := netip.ParseAddr(row[0]); failed == nil {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		switch {
		case err != nil:
			return no("expected an address or a network, found %s", shown(row[0]))
		case row[1] == "":
			exempt = append(exempt, network.Masked())
		case row[1] == usual:
			limited = append(limited, network.Masked())
		default:
			return no("it gives several keys")
		}
	}
	for _, e := range exempt {
		for _, l := range limited {
			if e.Overlaps(l) && e.Bits() <= l.Bits() {
				return no("it limits %s inside %s, and an exception of Diana takes precedence", l, e)
			}
		}
		if text := plain(e.String()); !slices.Contains(k.except, text) {
			k.except = append(k.except, text)
		}
	}
	return k
}

// byMethod returns the key of a map that limits some methods, each by the same key.
func (c *nginx) byMethod(usual string, results map[string]string, no func(string, ...any) *key) *key {
	text := ""
	var methods []string
	for _, method := range slices.Sorted(maps.Keys(results)) {
		switch result := results[method]; {
		case result == "":
		case strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || text != "" && result != text:
			return no("it gives several keys, or %s is no method", shown(method))
		default:
			text, methods = result, append(methods, method)
		}
	}
	if usual != "" || text == "" {
		return no("a url has one method or all")
	}
	k := c.key(text)
	k.methods = methods
	return k
}
